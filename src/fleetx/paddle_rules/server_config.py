"""The parts of Paddle 1.x's strategies for server jobs that a script sets.

`DistributeTranspilerConfig` defines how a program is divided, `TrainerRuntimeConfig` how workers
queue, merge and fetch; `RoundRobin` and `HashName` assign variables to servers. `server_strategy`
combines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleetx.runtime import environment

_LEAST_BLOCK = 8192


class DistributedMode:
    """Numbers of the modes."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3


class PSDispatcher:
    """Assigns variables to servers; subclasses define `dispatch`."""

    def __init__(self, pserver_endpoints: list[str]) -> None:
        self._eps = pserver_endpoints
        self._step = 0

    @property
    def eps(self) -> list[str]:
        """The servers' addresses."""
        return self._eps

    def reset(self) -> None:
        """Restart with the first server."""
        self._step = 0

    def dispatch(self, varlist: Iterable[Any]) -> list[str]:
        """Return the address of the server of each variable."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define dispatch(): use RoundRobin or HashName."
        )


class RoundRobin(PSDispatcher):
    """Assigns variables to servers round-robin."""

    def dispatch(self, varlist: Iterable[Any]) -> list[str]:
        """Return the address of the server of each variable."""
        found = []
        for _ in varlist:
            found.append(self._eps[self._step])
            self._step = (self._step + 1) % len(self._eps)
        return found


class HashName(PSDispatcher):
    """Assigns variables to servers by a hash of their names, the same on every worker."""

    def dispatch(self, varlist: Iterable[Any]) -> list[str]:
        """Return the address of the server of each variable."""
        from fleetx.ps.wire import partition  # slow, and `import paddle` imports this file

        names = [var.name() if callable(var.name) else var.name for var in varlist]
        return [self._eps[i] for i in partition.HashName(len(self._eps)).dispatch(names)]


class DistributeTranspilerConfig:
    """How a program is divided between workers and servers."""

    slice_var_up = True
    split_method: type[PSDispatcher] | None = None
    min_block_size = _LEAST_BLOCK
    enable_dc_asgd = False
    mode = "pserver"
    print_log = False
    wait_port = True
    half_async = False
    completely_not_async = False
    geo_sgd_mode = False
    geo_sgd_need_push_nums = 100
    nccl_comm_num = 1
    use_hierarchical_allreduce = False
    hierarchical_allreduce_inter_nranks = 0
    collective_mode: str | None = None
    _runtime_split_send_recv = False
    _sync_mode = True

    @property
    def runtime_split_send_recv(self) -> bool:
        """Whether gradients are divided when they are sent; not together with `sync_mode`."""
        return self._runtime_split_send_recv

    @runtime_split_send_recv.setter
    def runtime_split_send_recv(self, value: bool) -> None:
        if value is None:
            raise ValueError("runtime_split_send_recv must be True or False, not None.")
        if value and self._sync_mode:
            raise ValueError(
                "runtime_split_send_recv=True needs asynchronous training: set config.sync_mode to "
                "False first."
            )
        self._runtime_split_send_recv = value

    @property
    def sync_mode(self) -> bool:
        """Whether every step waits for all workers."""
        return self._sync_mode

    @sync_mode.setter
    def sync_mode(self, value: bool) -> None:
        if value is None:
            raise ValueError("sync_mode must be True or False, not None.")
        if value and self._runtime_split_send_recv:
            raise ValueError(
                "sync_mode=True excludes runtime_split_send_recv: set "
                "config.runtime_split_send_recv to False first."
            )
        self._sync_mode = value

    @property
    def distributed_mode(self) -> int:
        """Paddle's number of the mode that these settings select."""
        if self.sync_mode or self.completely_not_async:
            return DistributedMode.SYNC
        late = self.runtime_split_send_recv
        return DistributedMode.ASYNC if late else DistributedMode.HALF_ASYNC

    def check(self) -> None:
        """Reject settings that a server job does not support."""
        if self.mode != "pserver":
            raise ValueError(
                f"config.mode is {self.mode!r}: a job with parameter servers has 'pserver'; other "
                "modes are collective training."
            )
        if self.enable_dc_asgd:
            raise ValueError(
                "config.enable_dc_asgd (delay compensation) is not supported: set it to False, or "
                "bound the delay with a_sync_configs['max_staleness']."
            )
        assert self.min_block_size >= _LEAST_BLOCK, (
            f"config.min_block_size is {self.min_block_size}, but must be at least {_LEAST_BLOCK}."
        )
        if self.split_method is not None:
            assert PSDispatcher in self.split_method.__bases__, (
                "config.split_method must be a subclass of PSDispatcher: RoundRobin or HashName."
            )


class ServerRuntimeConfig:
    """Thread settings of Paddle's servers; stored without effect."""

    def __init__(self) -> None:
        for name in ("rpc_send_thread_num", "rpc_get_thread_num", "rpc_prefetch_thread_num"):
            setattr(self, f"_{name}", int(environment.paddle_flag(name, "12")))


_SYNC_KEYS = (
    "communicator_max_merge_var_num",
    "communicator_send_wait_times",
    "communicator_thread_pool_size",
    "communicator_send_queue_size",
)
_GEO_KEYS = ("communicator_thread_pool_size", "communicator_send_wait_times")
_FORCED = ("communicator_max_merge_var_num", "communicator_send_queue_size")


class TrainerRuntimeConfig:
    """How a worker queues, merges and fetches; each setting's default may be a FLAGS_ variable."""

    def __init__(self) -> None:
        self.mode: int | None = None
        threads = str(environment.cpu_num())
        defaults = {
            "communicator_max_merge_var_num": threads,
            "communicator_send_queue_size": threads,
            "communicator_independent_recv_thread": "1",
            "communicator_min_send_grad_num_before_recv": threads,
            "communicator_thread_pool_size": "5",
            "communicator_send_wait_times": "5",
            "communicator_is_sgd_optimizer": "1",
            "rpc_deadline": "180000",
            "rpc_retry_times": "3",
        }
        self.runtime_configs: dict[str, Any] = {
            name: environment.paddle_flag(name, value) for name, value in defaults.items()
        }

    def get_communicator_flags(self) -> dict[str, str]:
        """Return the settings that apply in this mode, as text."""
        keys: Iterable[str] = self.runtime_configs
        if self.mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC):
            keys = _SYNC_KEYS
            self._force()
        elif self.mode == DistributedMode.GEO:
            keys = _GEO_KEYS
        elif self.mode not in (None, DistributedMode.ASYNC):
            raise ValueError(f"mode {self.mode!r} is unknown: use a number of DistributedMode.")
        return {key: str(self.runtime_configs[key]) for key in keys}

    def _force(self) -> None:
        """In synchronous modes, set the queue sizes to the number of threads."""
        threads = str(environment.cpu_num())
        for key in _FORCED:
            found = self.runtime_configs[key]
            if found != threads:
                print(
                    f"WARNING: {key} = {found} is set to CPU_NUM = {threads}: they must be equal "
                    "in sync and half_async mode."
                )
                self.runtime_configs[key] = threads

    def display(self, configs: Mapping[str, str]) -> str:
        """Return a table of settings."""
        border, line = "=" * 50, "-" * 50
        rows = [f"{key:<45s}{value:<5s}" for key, value in configs.items()]
        head = f"{'TrainerRuntimeConfig Overview':^45s}{'Value':<5s}"
        return "\n" + "\n".join([border, head, line, *rows, border]) + "\n"

    def __repr__(self) -> str:
        return self.display(self.get_communicator_flags())

    def number(self, key: str) -> int:
        """Return a setting as a number; ValueError names it."""
        value = self.runtime_configs[f"communicator_{key}"]
        try:
            return int(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"trainer_runtime_config['communicator_{key}'] must be a whole number, not "
                f"{value!r}."
            ) from None
