"""Communication of a training script besides training: reductions, barriers, file shards."""

from __future__ import annotations

from typing import Any

from fleetx.fleet.roles.role_maker import RoleMakerBase


def split_files(files: list[str], index: int, count: int) -> list[str]:
    """Return the shard of worker `index` of `count` in a list of files.

    Shards are contiguous; if the files do not divide evenly, the first workers get one more:
    5 files for 2 workers are 3 and 2.
    """
    if not isinstance(files, list):
        raise TypeError(f"files should be a list of file need to be read, not {files!r}.")
    if not 0 <= index < count:
        raise ValueError(f"there is no share {index} of {count}.")
    size, rest = divmod(len(files), count)
    begin = index * size + min(index, rest)
    return files[begin : begin + size + (index < rest)]


class UtilBase:
    """Reductions, gathering, barriers and file shards over the processes of a job.

    `comm_world` says over which processes: 'worker', 'server' or 'all'.
    """

    def __init__(self, role_maker: RoleMakerBase | None = None) -> None:
        self.role_maker = role_maker

    @property
    def _role(self) -> RoleMakerBase:
        if self.role_maker is None:
            raise RuntimeError("fleet is not initialised: call fleet.init() first.")
        return self.role_maker

    def all_reduce(self, input: Any, mode: str = "sum", comm_world: str = "worker") -> Any:
        """Return the sum, 'max' or 'min' of numbers or arrays over all processes."""
        return self._role.all_reduce(input, mode, comm_world)

    def all_gather(self, input: Any, comm_world: str = "worker") -> Any:
        """Return the numbers or arrays of all processes, by rank."""
        return self._role.all_gather(input, comm_world)

    def barrier(self, comm_world: str = "worker") -> None:
        """Wait until all processes have reached this point."""
        self._role.barrier(comm_world)

    def get_file_shard(self, files: list[str]) -> list[str]:
        """Return this worker's shard of a list of files, contiguous and of nearly equal size."""
        return split_files(files, self._role.worker_index(), self._role.worker_num())

    def print_on_rank(self, message: object, rank_id: int) -> None:
        """Print a message on one worker."""
        if self._role.worker_index() == rank_id:
            print(message)
