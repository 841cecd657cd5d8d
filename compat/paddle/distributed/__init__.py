"""The Fleet API, which worker this is, and datasets of text files."""

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
    """Return the number of this worker, from 0."""
    return worker_environment.detect().rank


def get_world_size() -> int:
    """Return how many workers train together."""
    return worker_environment.detect().world_size


def init_parallel_env() -> None:
    """Connect the workers, if `fleet.init` has not done it, for programs with collective ops."""
    from paddle.distributed import fleet

    if membership.own() is None:
        fleet.init(is_collective=True)


class ParallelEnv:
    """What the launcher told this process."""

    @property
    def rank(self) -> int:
        """The number of this worker, from 0."""
        return worker_environment.detect().rank

    @property
    def world_size(self) -> int:
        """How many workers train together."""
        return worker_environment.detect().world_size

    @property
    def device_id(self) -> int:
        """The number of the device that the launcher chose for this worker."""
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
