"""The choice of `auto` in a file: reused only if the job is identical, and written by worker 0."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fleetx.checkpoint.atomic import write_bytes
from fleetx.step.technique import Job
from fleetx.techniques.auto_candidates import AutoConfig, Candidate, Facts
from fleetx.techniques.auto_trials import Trial

_FORMAT = 2


def recall(
    config: AutoConfig,
    facts: Facts,
    found: Sequence[Candidate],
    check: Callable[[Candidate], None],
    job: Job,
) -> Candidate | None:
    """Return the choice that a file remembers, if it is one for this job today; else None.

    Worker 0 reads the file and tells those that wait for it, whether they reach it or not. It must
    be of the same job, among today's candidates, and pass the rules.
    """
    if not config.file:
        return None
    kept = _read(config.file) if job.rank == 0 else {}
    reason = _why_not(kept, facts, found) if kept else ""
    names = [candidate.name for candidate in found]
    number = names.index(kept["name"]) if kept and not reason else -1
    number = int(job.gather(number)[0])
    candidate = found[number] if number >= 0 else None
    if candidate is not None:
        try:
            check(candidate)
        except ValueError as error:
            name, candidate = candidate.name, None
            reason = f"chose {name!r}, which is refused today ({error})"
    if job.rank == 0:
        if candidate is not None and kept:
            rate, count = kept["samples_per_second"], len(kept["tried"])
            how = f"measured {kept['date']}: {rate:.1f} samples/s, best of {count}"
            print(
                f"auto: {candidate.name!r}, as {config.file} remembers it ({how}).", file=sys.stderr
            )
        elif reason:
            print(f"auto: {config.file} {reason}; measuring anew.", file=sys.stderr)
    return candidate


def _read(file: str) -> dict[str, Any] | None:
    """Return what a file remembers: empty if there is no file, None if auto did not write it."""
    path = Path(file)
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) and isinstance(kept.get("job"), dict) else None


def _why_not(kept: dict[str, Any], facts: Facts, found: Sequence[Candidate]) -> str:
    """Return why a remembered choice does not count, as the predicate of a sentence."""
    if kept.get("format") != _FORMAT or not kept.keys() >= _KEYS:
        return "was written by another version of FleetX"
    was, now = kept["job"], json.loads(json.dumps(facts.flat()))
    different = [
        f"{key} {was.get(key, 'not set')} instead of {now.get(key, 'not set')}"
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    ]
    if different:
        more = f" and {len(different) - 2} more" if len(different) > 2 else ""
        return f"is of another job ({'; '.join(different[:2])}{more})"
    if not any(c.name == kept["name"] and dict(c.changes) == kept["changes"] for c in found):
        return f"chose {kept['name']!r}, which is not to be tried today"
    return ""


_KEYS = {"job", "name", "changes", "tried", "date", "samples_per_second"}


def remember(config: AutoConfig, facts: Facts, trials: Sequence[Trial], chosen: Trial) -> None:
    """Write the choice, and what was measured, to the file that the settings name.

    A file that auto has not written stays as it is.
    """
    if not config.file:
        return
    if _read(config.file) is None:
        print(
            f"auto: {config.file} is not a choice that auto has written and stays as it is: remove "
            "it, or name another file in auto_configs['file'].",
            file=sys.stderr,
        )
        return
    tried = [
        {"name": t.candidate.name, "seconds": t.seconds, "bytes": t.bytes_sent, "note": t.note}
        for t in trials
    ]
    candidate = chosen.candidate
    kept = {
        "format": _FORMAT,
        "date": datetime.now().astimezone().isoformat(" ", "minutes"),
        "job": facts.flat(),
        "name": candidate.name,
        "changes": dict(candidate.changes),
        "samples_per_second": chosen.samples / chosen.seconds if chosen.seconds else 0.0,
        "tried": tried,
    }
    write_bytes(config.file, (json.dumps(kept, indent=1) + "\n").encode())
