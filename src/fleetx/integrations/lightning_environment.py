"""The cluster environment of Lightning and Fabric under fleetrun or another launcher."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.environments import ClusterEnvironment

from fleetx.integrations.attached_job import AttachedJob
from fleetx.runtime.network import split_endpoint
from fleetx.runtime.worker_environment import WorkerEnvironment, detect


class FleetEnvironment(ClusterEnvironment):
    """A worker's rank and rendezvous, from the variables of any launcher."""

    def __init__(self, place: WorkerEnvironment) -> None:
        super().__init__()
        self._place = place
        self._master = split_endpoint(place.master)

    @property
    def creates_processes_externally(self) -> bool:
        """Whether the launcher, and not Lightning, has started the workers."""
        return True

    @property
    def main_address(self) -> str:
        """The host of the rendezvous."""
        return self._master[0]

    @property
    def main_port(self) -> int:
        """The port of the rendezvous."""
        return self._master[1]

    @staticmethod
    def detect() -> bool:
        """Return whether a launcher has started several workers."""
        return detect().world_size > 1

    def world_size(self) -> int:
        """Return the number of workers."""
        return self._place.world_size

    def set_world_size(self, size: int) -> None:
        """Check that Lightning is configured for the number of started workers."""
        if size != self._place.world_size:
            raise ValueError(
                f"Lightning expects {size} workers (devices times num_nodes), but the launcher "
                f"has started {self._place.world_size}: set devices to the number of workers per "
                "machine and num_nodes to the number of machines."
            )

    def global_rank(self) -> int:
        """Return the rank of this worker."""
        return self._place.rank

    def set_global_rank(self, rank: int) -> None:
        """Ignore Lightning's rank: the launcher's is used."""

    def local_rank(self) -> int:
        """Return the rank of this worker on its machine."""
        return self._place.local_rank

    def node_rank(self) -> int:
        """Return the index of the machine."""
        return self._place.rank // max(1, self._place.local_world_size)


class WithJob:
    """The common part of both strategies: a DDPStrategy that attaches Fleet in place of DDP."""

    _ddp_kwargs: dict[str, Any]

    def __init__(self, fleet_strategy: Any = None, **options: Any) -> None:
        options.setdefault("cluster_environment", environment_of_launcher())
        super().__init__(**options)
        if self._ddp_kwargs:
            raise ValueError(
                f"{type(self).__name__} does not take DDP's {', '.join(self._ddp_kwargs)}, since "
                "it does not wrap models in DDP: set a switch of the fleet strategy, such as "
                "find_unused_parameters."
            )
        self.job = AttachedJob(fleet_strategy)


def environment_of_launcher() -> ClusterEnvironment | None:
    """Return the launcher's environment; None if there is none, and Lightning launches."""
    return FleetEnvironment(detect()) if FleetEnvironment.detect() else None


def states_of(checkpoint: str | os.PathLike[str]) -> Path:
    """Return the folder with the states of all workers that belongs to a checkpoint."""
    return Path(f"{os.fspath(checkpoint)}.fleet")
