"""The Fleet API, the environment of this worker, and datasets of text files."""

from typing import TYPE_CHECKING

from fleetx.ps.tables.entries import CountFilterEntry, ProbabilityEntry
from fleetx.runtime import environment, membership, worker_environment
from fleetx.static.readers.file_datasets import InMemoryDataset, QueueDataset
from paddle.distributed import collective
from paddle.distributed.collective import *  # noqa: F403

if TYPE_CHECKING:  # loaded on first use, by the `__getattr__` that all modules have
    from paddle.distributed import fleet

__all__ = [
    "CountFilterEntry",
    "InMemoryDataset",
    "ParallelEnv",
    "ProbabilityEntry",
    "QueueDataset",
    *collective.__all__,
    "fleet",
    "get_rank",
    "get_world_size",
    "init_parallel_env",
]


def get_rank() -> int:
    """Return the rank of this worker."""
    return worker_environment.detect().rank


def get_world_size() -> int:
    """Return the number of workers."""
    return worker_environment.detect().world_size


def init_parallel_env() -> None:
    """Connect the workers for programs with collective ops, unless `fleet.init` has."""
    if membership.own() is None:
        from paddle.distributed import fleet  # a global name is not looked up by `__getattr__`

        fleet.init(is_collective=True)


class ParallelEnv:
    """The environment of this worker, set by the launcher."""

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        return worker_environment.detect().rank

    @property
    def world_size(self) -> int:
        """The number of workers."""
        return worker_environment.detect().world_size

    @property
    def device_id(self) -> int:
        """The index of the device that the launcher selected for this worker."""
        return environment.selected_device()

    @property
    def current_endpoint(self) -> str:
        """This worker's address, 'ip:port', or ''."""
        return environment.current_endpoint()

    @property
    def trainer_endpoints(self) -> list[str]:
        """The addresses of all workers."""
        return environment.worker_endpoints()

    nranks = world_size
    local_rank = rank
    dev_id = device_id
