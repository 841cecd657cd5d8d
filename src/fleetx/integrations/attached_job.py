"""The common part of all adapters: attach Fleet to another library's job, and save states.

The library creates the process group; Fleet uses it. If techniques have a different state on every
worker (localsgd, dgc), the library's checkpoint holds that of one worker: the states of all are
written beside it, and loaded when the library resumes. So are the rows of embeddings, which are not
parameters, in this process or on parameter servers.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from fleetx import fleet
from fleetx.fleet.collective.distributed_model import DistributedModel, LooksLikeItsModule
from fleetx.fleet.collective.distributed_optimizer import DistributedOptimizer
from fleetx.integrations.served_job import has_servers, join_servers, serve_if_server
from fleetx.runtime.worker_environment import detect
from fleetx.techniques.served_tables import row_modules

_log = logging.getLogger("fleetx.integrations")

# The gradients that a clip outside of the step sees with these switches.
_CANNOT_CLIP = {
    "gradient_merge": "the gradient of the last batch alone",
    "sharding": "a part of the gradients",
}


class AttachedJob:
    """The Fleet session of a job, and the optimizers that train in it."""

    def __init__(self, strategy: Any = None) -> None:
        self._strategy = fleet.DistributedStrategy() if strategy is None else strategy
        self._models: list[nn.Module] = []
        self._optimizers: list[DistributedOptimizer] = []
        serve_if_server(self._strategy)

    def start(self, rank: int, workers: int, nodes: int = 1) -> None:
        """Attach Fleet to a job of this size.

        Args:
            rank: the rank of this worker, as the library counts.
            workers: the number of workers.
            nodes: the number of machines.
        """
        if has_servers():
            join_servers(self._strategy, rank, workers)
            return
        self._models, self._optimizers = [], []
        place = detect()
        if (place.rank, place.world_size) == (rank, workers):
            fleet.init(is_collective=True, strategy=self._strategy)
            return
        if place.world_size > 1 or nodes > 1:
            raise RuntimeError(
                f"for the library this process is worker {rank} of {workers} on {nodes} "
                f"machine(s), but by its environment it is worker {place.rank} of "
                f"{place.world_size}: start the job with fleetrun or torchrun, with as many "
                "workers as the library is configured for."
            )
        # A library that starts processes on one machine itself may not set their ranks.
        endpoints = [f"127.0.0.1:{index + 1}" for index in range(workers)]
        role = fleet.UserDefinedCollectiveRoleMaker(rank, endpoints)
        fleet.init(role, is_collective=True, strategy=self._strategy)

    # -- training -----------------------------------------------------------------------
    def model(self, model: nn.Module) -> nn.Module:
        """Return the distributed model."""
        for known in self._models:
            if isinstance(known, LooksLikeItsModule) and known.module is model:
                return known
        self._models.append(fleet.distributed_model(model))
        return self._models[-1]

    def optimizer(self, optimizer: Optimizer) -> DistributedOptimizer:
        """Return the distributed optimizer."""
        if isinstance(optimizer, DistributedOptimizer):
            return optimizer
        made: DistributedOptimizer = fleet.distributed_optimizer(optimizer)
        self._optimizers.append(made)
        return made

    def release(self, model: nn.Module) -> None:
        """Release a model that is no longer trained."""
        if isinstance(model, DistributedModel):
            model.averaging.leave()

    def check_clip(self, setting: str) -> None:
        """Reject gradient clipping before the step if it would see the wrong gradients."""
        if has_servers():
            raise ValueError(
                f"{setting} clips gradients before the optimizer's step, but in a job with "
                "parameter servers this excludes those of rows: set it to 0 or omit it."
            )
        for technique, seen in _CANNOT_CLIP.items():
            if getattr(self._strategy, technique, False):
                raise ValueError(
                    f"{setting} clips gradients before the optimizer's step, but with "
                    f"strategy.{technique} it sees {seen}: omit it and set "
                    "strategy.gradient_clip = True, which clips inside the step."
                )

    # -- checkpoints --------------------------------------------------------------------
    def make_equal(self) -> None:
        """Synchronize the model of all workers, for a save; all must call it."""
        fleet.synchronize_model()

    @property
    def gathers_state(self) -> bool:
        """Whether all workers must call an optimizer's `state_dict`, since it is sharded."""
        return fleet.fleet.gathers_state

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save what the library does not: per-worker states, and rows; all must call it."""
        if self._keeps_more:
            fleet.save_checkpoint(str(folder), keep=1, exact=False, **self._parts())

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Load what `save` wrote, if it exists; all must call it."""
        if not self._keeps_more:
            return
        if Path(folder).exists():
            fleet.load_checkpoint(str(folder), exact=False, **self._parts())
        elif fleet.is_first_worker():
            _log.warning(
                "%s does not exist: the checkpoint was written without the techniques or tables of "
                "this job, whose states (residuals, averages, counters, rows) are reset.",
                folder,
            )

    @property
    def _has_rows(self) -> bool:
        return has_servers() or any(any(row_modules(each)) for each in self._models)

    @property
    def _keeps_more(self) -> bool:
        return self._has_rows or fleet.fleet.differs_by_worker

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = {f"optimizer_{i}": x for i, x in enumerate(self._optimizers)}
        if self._has_rows:
            parts |= {f"model_{i}": x for i, x in enumerate(self._models)}
        return parts


def remove_states(folder: str | os.PathLike[str]) -> None:
    """Remove the files of `AttachedJob.save`, if any."""
    shutil.rmtree(folder, ignore_errors=not Path(folder).exists())
