"""How a job with parameter servers trains: its mode, and how parameters are divided.

`ServerMode` is what every front end agrees on. It is made from `a_sync` and `a_sync_configs` of a
DistributedStrategy, or from one of Paddle's 1.x strategies, and makes the mode object that a worker
trains with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetx.ps.client.client import Client
from fleetx.ps.modes.async_mode import AsyncMode, AsyncSettings
from fleetx.ps.modes.geo_mode import GeoMode
from fleetx.ps.modes.half_async_mode import HalfAsyncMode
from fleetx.ps.modes.mode import Mode
from fleetx.ps.modes.sync_mode import SyncMode
from fleetx.ps.tables.table_spec import DenseTableSpec, SparseTableSpec
from fleetx.ps.wire.partition import MIN_BLOCK_SIZE, HashName, RoundRobin

KINDS = ("sync", "async", "half_async", "geo")
SPLIT_METHODS: dict[str, Any] = {"RoundRobin": RoundRobin, "HashName": HashName}


@dataclass(frozen=True, kw_only=True)
class ServerMode:
    """A mode of training with parameter servers, with its settings."""

    kind: str = "sync"
    """One of `KINDS`."""
    k_steps: int = 100
    """Steps between two exchanges ("geo")."""
    threads: int = 1
    """Training threads of a worker that keep step with each other ("half_async")."""
    settings: AsyncSettings = field(default_factory=AsyncSettings)
    """How gradients are queued and merged ("async")."""
    slice_var_up: bool = True
    """Whether large parameters are cut into one slice per server."""
    min_block_size: int = MIN_BLOCK_SIZE
    """The fewest elements of a slice."""
    waits_for_servers: bool = True
    """Whether a worker meets the servers at `init_worker`, or only when it first needs them."""
    split_method: str = "RoundRobin"
    """Which server gets a slice: one of `SPLIT_METHODS`."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"mode {self.kind!r} is not known: use {', '.join(KINDS)}.")
        if self.split_method not in SPLIT_METHODS:
            raise ValueError(
                f"split_method {self.split_method!r} is not known: use {', '.join(SPLIT_METHODS)}."
            )
        if self.kind == "geo" and self.k_steps < 1:
            raise ValueError(f"geo training exchanges every 1 or more steps, not {self.k_steps}.")

    @property
    def updates_on_worker(self) -> bool:
        """Whether the optimizer of dense parameters runs on workers."""
        return self.kind == "geo"

    def make(
        self,
        client: Client,
        dense: Sequence[Sequence[DenseTableSpec]],
        sparse: Sequence[SparseTableSpec],
    ) -> Mode:
        """Return the object a worker trains with."""
        if self.kind == "sync":
            return SyncMode(client, dense, sparse)
        if self.kind == "async":
            return AsyncMode(client, dense, sparse, settings=self.settings)
        if self.kind == "half_async":
            return HalfAsyncMode(client, dense, sparse, threads=self.threads)
        return GeoMode(client, dense, sparse, k_steps=self.k_steps)


# Paddle 2.x cuts only where every server gets so many elements.
MIN_BLOCK_SIZE_2 = 81920


def server_mode(strategy: Any) -> ServerMode:
    """Return the mode that a strategy asks for; one that is a ServerMode already is taken as it is.

    A strategy of another kind may have a method `server_mode` that returns it.
    """
    if isinstance(strategy, ServerMode):
        return strategy
    if hasattr(strategy, "server_mode"):
        return strategy.server_mode()  # type: ignore[no-any-return]
    configs = strategy.a_sync_configs
    k_steps = configs["k_steps"]
    if k_steps < 0:
        raise ValueError(
            "a job with parameter servers has to say how it trains: set strategy.a_sync to False "
            "(sync) or True (async), or a_sync_configs['k_steps'] to 1 or more as well (geo)."
        )
    if k_steps > 0 and not strategy.a_sync:
        raise ValueError(
            f"a_sync_configs['k_steps'] is {k_steps}, but strategy.a_sync is False: geo training "
            "needs a_sync=True, and synchronous training k_steps=0."
        )
    kind = "geo" if k_steps else "async" if strategy.a_sync else "sync"
    settings = AsyncSettings(
        max_merge_var_num=configs["max_merge_var_num"],
        send_queue_size=configs["send_queue_size"],
        send_wait_times=max(1, configs["send_wait_times"]),
        independent_recv_thread=configs["independent_recv_thread"],
        min_send_grad_num_before_recv=configs["min_send_grad_num_before_recv"],
        max_staleness=None if configs["max_staleness"] < 0 else configs["max_staleness"],
    )
    return ServerMode(
        kind=kind,
        k_steps=max(1, k_steps),
        settings=settings,
        min_block_size=MIN_BLOCK_SIZE_2,
        waits_for_servers=configs["launch_barrier"],
    )
