"""train_epoch_range: a loop over epochs that resumes where an earlier process stopped.

    exe.run(startup_program)
    for epoch in train_epoch_range(10):
        for data in loader():
            exe.run(main_program, feed=data, fetch_list=[loss])

Programs that train inside the loop are saved at the end of epochs, by worker 0. When the job is
restarted with the same job id, each of them is restored before its first run, and the loop starts
after the last saved epoch. `runtime/auto_checkpoint.py` lists the variables that enable this;
without them the loop is a plain range.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from fleetx.checkpoint.file_system import FS, LocalFS
from fleetx.checkpoint.hadoop_file_system import HadoopFS
from fleetx.fleet.saving import program_checkpoints
from fleetx.runtime import auto_checkpoint, worker_environment
from fleetx.static.graph.program import Program
from fleetx.static.run.run_watchers import watching
from fleetx.static.run.scope import Scope, global_scope

_log = logging.getLogger("fleetx.fleet")
_count = 0  # ranges of this process, in order: the same numbers after a restart


class TrainEpochRange:
    """The epochs of a training, saved in a folder of the job."""

    def __init__(
        self,
        max_epoch_num: int,
        name: str,
        settings: auto_checkpoint.AutoCheckpoint,
        checkpoint_inter: float | None = None,
    ) -> None:
        if max_epoch_num < 0:
            raise ValueError(f"max_epoch_num must be 0 or more, not {max_epoch_num}.")
        if checkpoint_inter is not None and checkpoint_inter < 0:
            raise ValueError(f"save_checkpoint_inter must be 0 or more, not {checkpoint_inter}.")
        self.name = name
        self._epochs = max_epoch_num
        self._folder = f"{settings.folder}/{name}"
        self._seconds = settings.seconds if checkpoint_inter is None else checkpoint_inter
        self._cache = settings.cache
        self._fs: FS = LocalFS()
        if settings.hadoop_home:
            self._fs = HadoopFS(settings.hadoop_home, settings.hadoop_configs)
        self._worker = worker_environment.detect().rank
        self._programs: list[tuple[Any, Program]] = []
        self._last = program_checkpoints.last_epoch(self._path(0), fs=self._fs, cache=self._cache)

    @property
    def restored_from(self) -> str | None:
        """Return "CHECKPOINT" if an earlier process has saved epochs, else None."""
        return None if self._last is None else "CHECKPOINT"

    def get(self) -> Iterator[int]:
        """Yield the remaining epochs, and save at their ends."""
        saved = time.monotonic()
        with watching(self._before_run):
            for epoch in range(0 if self._last is None else self._last + 1, self._epochs):
                yield epoch
                due = time.monotonic() - saved >= self._seconds
                if due or epoch == self._epochs - 1:
                    self._save(epoch)
                    saved = time.monotonic()

    def _path(self, number: int) -> str:
        return f"{self._folder}/program_{number}"

    def _before_run(self, executor: Any, program: Program, scope: Scope) -> None:
        if program.binding.updated_by is None or scope is not global_scope():
            return
        if any(known is program for _, known in self._programs):
            return
        number = len(self._programs)
        # First, because loading runs a program too.
        self._programs.append((executor, program))
        if self._last is not None:
            path = self._path(number)
            program_checkpoints.load(
                executor, path, program, fs=self._fs, cache=self._cache, worker=self._worker
            )
            _log.info("program %d resumes from the checkpoint of epoch %d.", number, self._last)

    def _save(self, epoch: int) -> None:
        if self._worker != 0:
            return
        # The first program's checkpoint marks the epoch as finished: it is written last.
        for number in reversed(range(len(self._programs))):
            executor, program = self._programs[number]
            program_checkpoints.save(
                executor,
                self._path(number),
                epoch,
                program,
                fs=self._fs,
                cache=self._cache,
                keep_all=False,
            )


def train_epoch_range(
    max_epoch_num: int, save_checkpoint_inter: float | None = None
) -> Iterator[int]:
    """Yield the epochs of a training, without those that an earlier process of the job has saved.

    Args:
        max_epoch_num: the number of epochs.
        save_checkpoint_inter: the minimum seconds between two checkpoints; by default the
            value of PADDLE_EDL_SAVE_CHECKPOINT_INTER, or 900.
    """
    global _count
    settings = auto_checkpoint.settings()
    if settings is None:
        _log.info("PADDLE_RUNNING_ENV does not enable checkpoints: all epochs run.")
        yield from range(max_epoch_num)
        return
    name = f"range_{_count}"
    _count += 1
    yield from TrainEpochRange(max_epoch_num, name, settings, save_checkpoint_inter).get()
