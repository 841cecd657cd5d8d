"""The training mode of a job with parameter servers, and the slicing of parameters.

All front ends use `ServerMode`. It is created from the settings of a strategy and creates the mode
object of a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetx.ps.client.client import Client
from fleetx.ps.modes.async_mode import AsyncMode, AsyncSettings
from fleetx.ps.modes.geo_mode import GeoMode
from fleetx.ps.modes.half_async_mode import HalfAsyncMode
from fleetx.ps.modes.mode import Mode
from fleetx.ps.modes.sync_mode import SyncMode
from fleetx.ps.tables.table_spec import (
    BlockSpec,
    DenseTableSpec,
    OptimizerSpec,
    SparseTableSpec,
)
from fleetx.ps.wire.partition import MIN_BLOCK_SIZE, HashName, RoundRobin, slice_parameter

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
    """Synchronised training threads of a worker ("half_async")."""
    settings: AsyncSettings = field(default_factory=AsyncSettings)
    """How gradients are queued and merged ("async")."""
    slice_var_up: bool = True
    """Whether large parameters are split into one slice per server."""
    min_block_size: int = MIN_BLOCK_SIZE
    """The minimum number of elements of a slice."""
    waits_for_servers: bool = True
    """Whether a worker connects to the servers in `init_worker`, or only when it first needs
    them.
    """
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
        """Return the mode object of a worker."""
        if self.kind == "sync":
            return SyncMode(client, dense, sparse)
        if self.kind == "async":
            return AsyncMode(client, dense, sparse, settings=self.settings)
        if self.kind == "half_async":
            return HalfAsyncMode(client, dense, sparse, threads=self.threads)
        return GeoMode(client, dense, sparse, k_steps=self.k_steps)


def dense_table(
    name: str,
    dtype: str,
    optimizer: OptimizerSpec,
    parameters: Iterable[tuple[str, tuple[int, ...], Mapping[str, Any]]],
    mode: ServerMode,
    servers: int,
    dispatcher: Any = None,
) -> list[DenseTableSpec]:
    """Return a dense table's specification per server, with parameters split into blocks.

    `parameters` are names, shapes and fields of their blocks.
    """
    dispatcher = dispatcher or SPLIT_METHODS[mode.split_method](servers)
    blocks: list[list[BlockSpec]] = [[] for _ in range(servers)]
    for parameter, shape, own in parameters:
        slices = slice_parameter(
            parameter,
            shape,
            servers=servers,
            slice_var_up=mode.slice_var_up and not optimizer.needs_whole_parameters,
            min_block_size=mode.min_block_size,
        )
        places = dispatcher.dispatch(part.name for part in slices)
        for part, place in zip(slices, places, strict=True):
            blocks[place].append(replace(part, **own))
    return [
        DenseTableSpec(name=name, dtype=dtype, optimizer=optimizer, blocks=tuple(each))
        for each in blocks
    ]
