"""A folder of numbered versions of a model, and the switch to a new one without downtime.

    models/1/  models/2/  ...

The highest number is served. A new version is loaded, compared with the old one and tested in a
separate, slowly paced thread, while the old one serves requests. A version that cannot be served is
skipped with a warning, and the old one stays.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from fleetx.checkpoint.file_errors import FormatError
from fleetx.ps.client.row_reader import ServersUnavailableError
from fleetx.serving.independence import why_not_joined
from fleetx.serving.model import ServedModel
from fleetx.serving.paced import Pace

_log = logging.getLogger(__name__)

Load = Callable[[Path], ServedModel]
# Takes a tested model, and the reason if its requests are not batched.
Take = Callable[[ServedModel, str | None], None]


# The files of a version: names, sizes and times.
_Stamp = list[tuple[str, int, int]]


def _stamp(folder: Path) -> _Stamp:
    found = sorted((str(each), each.stat()) for each in folder.rglob("*"))
    return [(name, about.st_size, about.st_mtime_ns) for name, about in found]


def newest_version(folder: Path) -> Path:
    """Return the subfolder with the highest number."""
    found = [each for each in folder.glob("[0-9]*") if each.is_dir() and each.name.isdigit()]
    if not found:
        raise FileNotFoundError(
            f"--watch serves the highest numbered version in a folder, but {str(folder)!r} has no "
            f"folder such as {str(folder / '1')!r}: save the model there, or omit --watch."
        )
    return max(found, key=lambda each: int(each.name))


class Versions:
    """Looks for new versions of a model in a folder."""

    def __init__(self, folder: Path, load: Load, seconds: float) -> None:
        self._folder, self._load, self._seconds = folder, load, seconds
        self._served: Path | None = None
        self._tried_last: tuple[Path, _Stamp] | None = None
        self._pace = Pace()

    def first(self) -> ServedModel:
        """Load the newest version now."""
        self._served = newest_version(self._folder)
        return self._load(self._served)

    async def follow(self, current: Callable[[], ServedModel], take: Take) -> None:
        """Poll for new versions, and hand one over when it can be served."""
        with ThreadPoolExecutor(1, "versions", initializer=_use_one_core) as thread:
            try:
                await self._follow(thread, current, take)
            finally:
                self._pace.stop()  # the server ends, and does not wait for a model

    async def _follow(
        self, thread: ThreadPoolExecutor, current: Callable[[], ServedModel], take: Take
    ) -> None:
        run = partial(asyncio.get_running_loop().run_in_executor, thread)
        while True:
            await asyncio.sleep(self._seconds)
            try:
                found = await run(newest_version, self._folder)
                if found == self._served:
                    continue
                # A rejected version is tried again when its files have changed: somebody may
                # still have been copying them.
                stamped = found, await run(_stamp, found)
                if stamped == self._tried_last:
                    continue
                self._tried_last = stamped
                model, reason = await run(self._tried, found, current())
            except ServersUnavailableError as error:
                self._tried_last = None  # try again when they respond
                _log.warning("the old version stays for now: %s", error)
                continue
            except (OSError, ValueError, RuntimeError, FormatError) as error:
                _log.warning("the old version stays: %s", error)
                continue
            self._served = found
            take(model, reason)
            _log.warning("serving %s, version %s, from now on", model.path, model.version)

    def _tried(self, path: Path, old: ServedModel) -> tuple[ServedModel, str | None]:
        """Load a version; raise an error if it cannot serve the old one's requests."""
        with self._pace.kept():
            return self._try(path, old)

    def _try(self, path: Path, old: ServedModel) -> tuple[ServedModel, str | None]:
        model = self._load(path)
        for word in ("inputs", "outputs"):
            ours, theirs = getattr(model, word), getattr(old, word)
            if ours != theirs:
                said = [", ".join(map(str, specs)) for specs in (ours, theirs)]
                raise ValueError(
                    f"{path} has other {word} than the served model ({said[0]} instead of "
                    f"{said[1]}), which would break its clients: serve it separately."
                )
        return model, why_not_joined(model)


def _use_one_core() -> None:
    """Leave the other cores to requests.

    A lower priority would make them wait: this thread needs the interpreter lock, too, and must not
    lose its core while it holds it.
    """
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    # It holds for this thread, and for those that start later unless another one sets it again.
    other = threading.Thread(target=torch.set_num_threads, args=(usual,))
    other.start()
    other.join()
