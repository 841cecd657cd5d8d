"""Detection of the instruction set that PyTorch can use on this CPU without crashing.

A virtual machine may advertise AMX without supporting it: oneDNN, which computes PyTorch's bfloat16
products, then dies from SIGILL. If AMX is advertised, a probe in a separate process tests it and
tries lower limits until one works; the outcome is cached until the next boot. oneDNN reads
ONEDNN_MAX_CPU_ISA when it first computes, not when torch is imported; later changes have no
effect. Uses only the standard library: the launcher must not import torch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from fleetx.runtime.environment import heartbeat_file

VARIABLE = "ONEDNN_MAX_CPU_ISA"
_OLD_NAME = "DNNL_MAX_CPU_ISA"  # also read by oneDNN
# oneDNN's names, each without the newest extension of the previous one; "" means no limit.
LIMITS = ("", "AVX512_CORE_FP16", "AVX512_CORE_BF16", "AVX512_CORE", "AVX2", "SSE41")
_PATIENCE = 120.0
_CRASHES = {-signal.SIGILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGTRAP}

# Products, convolutions and their gradients in the types that AMX has instructions for. The sizes
# are large enough for its tiles.
_PROGRAM = """
import torch
from torch.nn import functional as F
for dtype in (torch.bfloat16, torch.float16):
    a = torch.randn(64, 64).to(dtype).requires_grad_()
    b = torch.randn(64, 64).to(dtype).requires_grad_()
    x = torch.randn(2, 32, 8, 8).to(dtype).requires_grad_()
    w = torch.randn(32, 32, 3, 3).to(dtype).requires_grad_()
    total = (a @ b).float().sum() + F.linear(a, b).float().sum() + F.conv2d(x, w).float().sum()
    total.backward()
one = torch.ones(64, 64, dtype=torch.int8)
torch._int_mm(one, one)
"""
PROBE = (sys.executable, "-c", _PROGRAM)


class State(Enum):
    """What is known about the CPU."""

    PLAIN = "plain"
    """AMX is not advertised: nothing to test."""
    GIVEN = "given"
    """The user has set a limit."""
    FULL = "full"
    """AMX is advertised and works."""
    LIMITED = "limited"
    """AMX does not work; a limit helps."""
    BROKEN = "broken"
    """No limit helps."""
    UNKNOWN = "unknown"
    """The probe could not run."""


@dataclass(frozen=True)
class Verdict:
    """The outcome, and the limit to set."""

    state: State
    limit: str = ""
    """The value for ONEDNN_MAX_CPU_ISA; empty for none."""
    detail: str = ""

    def sentence(self) -> str:
        """Return the outcome as a sentence for `fleetx info` and messages."""
        match self.state:
            case State.PLAIN:
                return "no AMX advertised: nothing to limit"
            case State.GIVEN:
                return f"limited to {self.limit} by {VARIABLE}, as set in the environment"
            case State.FULL:
                return "AMX advertised and working"
            case State.LIMITED:
                return (
                    f"this CPU advertises AMX, but PyTorch {self.detail} with it: "
                    f"{VARIABLE}={self.limit} works"
                )
            case State.BROKEN:
                return (
                    f"this CPU advertises AMX, but PyTorch {self.detail} in half precision, "
                    f"whatever {VARIABLE} is"
                )
            case State.UNKNOWN:
                return f"AMX advertised, but whether it works is unknown: {self.detail}"


def examine(
    environment: Mapping[str, str] | None = None,
    *,
    cpuinfo: str | None = None,
    probe: Sequence[str] = PROBE,
) -> Verdict:
    """Return the limit that this CPU needs; run `probe` only if AMX is advertised.

    Args:
        environment: the variables of the processes that will compute (default: this one's).
        cpuinfo: the text of /proc/cpuinfo, one processor suffices (default: this machine's).
        probe: the command that computes; it must die from a signal if workers would.
    """
    environment = os.environ if environment is None else environment
    given = environment.get(VARIABLE) or environment.get(_OLD_NAME)
    if given:
        return Verdict(State.GIVEN, given)
    cpu = _read_cpuinfo() if cpuinfo is None else cpuinfo
    if not advertises_amx(cpu):
        return Verdict(State.PLAIN)
    outcomes = _Outcomes(environment, cpu, probe)
    first = ""
    for limit in LIMITS:
        code = outcomes.of(limit)
        if code == 0:
            return Verdict(State.LIMITED, limit, first) if limit else Verdict(State.FULL)
        if code not in _CRASHES:
            return Verdict(State.UNKNOWN, detail=outcomes.failure)
        first = first or f"ends by {signal.Signals(-code).name}"
    return Verdict(State.BROKEN, detail=first)


def half_precision_fails(
    environment: Mapping[str, str] | None = None,
    *,
    cpuinfo: str | None = None,
    probe: Sequence[str] = PROBE,
) -> str:
    """Return how half precision would crash a process with this environment (default: this
    one's); "" if it works."""
    environment = os.environ if environment is None else environment
    cpu = _read_cpuinfo() if cpuinfo is None else cpuinfo
    if not advertises_amx(cpu):
        return ""
    limit = environment.get(VARIABLE) or environment.get(_OLD_NAME) or ""
    code = _Outcomes(environment, cpu, probe).of(limit)
    return f"it ends by {signal.Signals(-code).name}" if code in _CRASHES else ""


def prepare_process(*, cpuinfo: str | None = None, probe: Sequence[str] = PROBE) -> Verdict:
    """Limit oneDNN in this process if necessary, and log it; fleetrun does so for its workers."""
    if heartbeat_file():  # fleetrun started this process and has checked already
        return Verdict(State.GIVEN, os.environ.get(VARIABLE, ""))
    verdict = examine(os.environ, cpuinfo=cpuinfo, probe=probe)
    log = logging.getLogger("fleetx.fleet")
    if verdict.state is State.LIMITED:
        os.environ[VARIABLE] = verdict.limit
        log.warning(
            "fleet.init: %s and is set now; where the script computes before fleet.init, "
            "export %s=%s before it starts, or start it with fleetrun.",
            verdict.sentence(),
            VARIABLE,
            verdict.limit,
        )
    elif verdict.state in (State.BROKEN, State.UNKNOWN):
        log.warning("fleet.init: %s.", verdict.sentence())
    return verdict


def advertises_amx(cpuinfo: str) -> bool:
    """Return whether a processor of /proc/cpuinfo has an AMX flag."""
    return any(flag.startswith("amx") for flag in _flags(cpuinfo))


def _flags(cpuinfo: str) -> list[str]:
    found = re.search(r"^flags\s*:(.*)$", cpuinfo, flags=re.MULTILINE)
    return found.group(1).split() if found else []


def _read_cpuinfo() -> str:
    """Return the first processor of /proc/cpuinfo: reading hundreds of them takes long."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = []
            for line in file:
                if not line.strip():
                    break
                lines.append(line)
    except OSError:  # not Linux, or hidden: nothing is known to be advertised
        return ""
    return "".join(lines)


class _Outcomes:
    """The exit codes of the probe by limit, cached in a file per machine.

    The file is only a cache: if it cannot be read, is damaged or belongs to another boot or torch,
    the probe runs again.
    """

    def __init__(self, environment: Mapping[str, str], cpuinfo: str, probe: Sequence[str]) -> None:
        self._environment, self._probe = environment, list(probe)
        self.failure = ""
        """Why the probe could not run."""
        self._key = _machine(cpuinfo, self._probe)
        folder = environment.get("XDG_CACHE_HOME") or os.path.join(
            environment.get("HOME") or os.path.expanduser("~"), ".cache"
        )
        # One file per machine: home folders are often shared.
        host = re.sub(r"[^\w.-]", "_", platform.node())
        self._file = Path(folder, "fleetx", f"cpu-{host}.json")
        self._codes = self._load()

    def of(self, limit: str) -> int:
        """Return how the probe ended under this limit."""
        if limit not in self._codes:
            code = self._run(limit)
            if code != 0 and code not in _CRASHES:
                return code  # not caused by the CPU
            self._codes[limit] = code
            self._save()
        return self._codes[limit]

    def _run(self, limit: str) -> int:
        environment = {**self._environment, "OMP_NUM_THREADS": "1"}
        if limit:
            environment[VARIABLE] = limit
        try:
            done = subprocess.run(
                self._probe,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.failure = f"its test did not end within {_PATIENCE:.0f} s"
            return 1
        except OSError as error:
            self.failure = f"its test cannot be started ({error.strerror})"
            return 1
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        self.failure = f"its test ended with code {done.returncode} {' '.join(last)}".strip()
        return done.returncode

    def _load(self) -> dict[str, int]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            same = kept["machine"] == self._key
            return {str(k): int(v) for k, v in kept["outcomes"].items()} if same else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _save(self) -> None:
        text = json.dumps({"machine": self._key, "outcomes": self._codes}, indent=1) + "\n"
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=".cpu-")
        except OSError:  # the home folder is read-only: the next job probes again
            return
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, self._file)
        except OSError:  # a full disk: likewise
            os.unlink(name)


def _machine(cpuinfo: str, probe: Sequence[str]) -> dict[str, str]:
    """Return what an outcome depends on: another boot may run on another hypervisor."""
    from importlib import metadata  # slow to import, and only CPUs with AMX need it

    model = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, flags=re.MULTILINE)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # hidden in some containers
        boot = ""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    return {
        "cpu": model.group(1) if model else "",
        "flags": _digest(" ".join(sorted(_flags(cpuinfo)))),
        "kernel": platform.release(),
        "boot": boot,
        "torch": torch,
        "probe": _digest("\0".join(probe)),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
