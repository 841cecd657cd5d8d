"""Averaging the parameters of a PyTorch module over all workers, in flat buckets kept between
averages.

Where nothing asks for more, the values themselves travel and nothing is kept. A snapshot of the
last average is kept if differences from it are wanted: because they travel in half precision, or
because an outer momentum (SlowMo, DiLoCo) carries on the direction in which averages move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fleetx import torch_private
from fleetx.comm import world
from fleetx.comm.buckets import make_buckets
from fleetx.comm.gradient_all_reduce import GradientExchange
from fleetx.kernels.local_sgd import take_outer_step
from fleetx.runtime import heartbeat
from fleetx.step.settings import setting
from fleetx.step.stages import Parameters


@dataclass(frozen=True, kw_only=True)
class AverageConfig:
    """The settings that all ways of averaging parameters share."""

    begin_step: int = setting(1, number=2, since="2.0", least=0)
    """Average every step up to this one."""
    average_momentum: bool = setting(False, number=1001)
    """Average the optimizer's momenta too."""
    outer_momentum: float = setting(0.0, number=1002, least=0)
    """Momentum of the outer steps from one average to the next (SlowMo, DiLoCo)."""
    outer_lr: float = setting(1.0, number=1003, above=0)
    """Learning rate of the outer steps."""
    outer_nesterov: bool = setting(False, number=1004)
    """Use Nesterov momentum in the outer steps."""
    save_wait: float = setting(5.0, number=1006, least=0)
    """Seconds that a save between two averages waits for all workers, to average first."""


@dataclass(frozen=True, kw_only=True)
class OuterStep:
    """How far parameters follow the workers' average: a step of SGD whose gradient is snapshot
    minus average."""

    momentum: float = 0.0
    rate: float = 1.0
    nesterov: bool = False

    @classmethod
    def from_config(cls, config: AverageConfig) -> OuterStep:
        """Return what a technique's settings ask for."""
        return cls(
            momentum=config.outer_momentum,
            rate=config.outer_lr,
            nesterov=config.outer_nesterov,
        )

    @property
    def is_plain(self) -> bool:
        """Parameters become the average itself."""
        return self.momentum == 0.0 and self.rate == 1.0

    def change(self, difference: torch.Tensor, velocity: torch.Tensor) -> torch.Tensor:
        """Return what to take off the snapshot; the velocity is updated in place."""
        return take_outer_step(
            difference,
            velocity,
            momentum=self.momentum,
            rate=self.rate,
            nesterov=self.nesterov,
        )


class _Bucket:
    """Tensors that travel together, and the flat memory they travel in."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = list(tensors)
        sizes = [t.numel() for t in tensors]
        self.flat = torch.empty(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
        self.parts = self.views(self.flat)
        self.snapshot: torch.Tensor | None = None
        self.velocity: torch.Tensor | None = None

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return flat memory of the bucket's size in the shapes of the tensors."""
        sizes = [t.numel() for t in self.tensors]
        rows = zip(flat.split(sizes), self.tensors, strict=True)
        return [part.view(t.shape) for part, t in rows]

    def pack(self) -> None:
        torch_private.foreach_copy_(self.parts, self.tensors)

    def unpack(self) -> None:
        torch_private.foreach_copy_(self.tensors, self.parts)

    def pack_difference(self) -> None:
        self.pack()
        assert self.snapshot is not None
        torch.sub(self.snapshot, self.flat, out=self.flat)

    def unpack_difference(self, outer: OuterStep | None) -> None:
        assert self.snapshot is not None
        change = self.flat
        if outer is not None:
            if self.velocity is None:
                self.velocity = torch.zeros_like(self.flat)
            change = outer.change(self.flat, self.velocity)
        self.snapshot.sub_(change)
        self.flat.copy_(self.snapshot)
        self.unpack()


class ParameterAverage:
    """Averages tensors over all workers; all of them must call it together."""

    def __init__(self, exchange: GradientExchange, outer: OuterStep) -> None:
        self._exchange = exchange
        self._outer = outer
        self.keeps_snapshot = exchange.all_reduce.settings.dtype is not None or not outer.is_plain
        self._buckets: list[_Bucket] = []
        self._laid_out: list[int] = []
        self._names: list[str] = []
        self._exact: list[_Bucket] = []
        self._loaded: dict[str, dict[str, torch.Tensor]] = {}

    @torch.no_grad()
    def remember(self, trained: Parameters) -> None:
        """Take the snapshot of parameters that have none yet, before a first update."""
        self._lay_out(trained)

    @torch.no_grad()
    def average(
        self, trained: Parameters, others: Sequence[torch.Tensor], *, is_begin: bool
    ) -> None:
        """Make parameters equal on all workers, and others (statistics) their mean.

        `is_begin`: workers do not train alone yet, so there is no outer step.
        """
        if not self.keeps_snapshot:
            tensors = [*trained.values(), *others]
            if self._laid_out != [id(t) for t in tensors]:
                self._buckets = self._divide(tensors)
                self._laid_out = [id(t) for t in tensors]
            for bucket in self._buckets:
                bucket.pack()
            self._sum(self._buckets)
            for bucket in self._buckets:
                bucket.unpack()
            return
        self._lay_out(trained)
        for bucket in self._buckets:
            bucket.pack_difference()
        self._sum(self._buckets)
        outer = None if is_begin or self._outer.is_plain else self._outer
        for bucket in self._buckets:
            bucket.unpack_difference(outer)
        self._average_exactly(others)

    def _sum(self, buckets: Sequence[_Bucket]) -> None:
        """Replace every bucket by the mean over the workers."""
        with heartbeat.collective("parameter average"):
            handles = [self._exchange.all_reduce.start(bucket.flat) for bucket in buckets]
            for handle, bucket in zip(handles, buckets, strict=True):
                handle.wait()
                # Behind the sum, as in programs: small differences keep their bits in float16.
                bucket.flat.mul_(1.0 / world.world_size())
        heartbeat.beat()

    def _average_exactly(self, tensors: Sequence[torch.Tensor]) -> None:
        """Average what has no snapshot; half precision is for differences only."""
        if not tensors:
            return
        known = [t for bucket in self._exact for t in bucket.tensors]
        if len(known) != len(tensors) or any(
            a is not b for a, b in zip(known, tensors, strict=True)
        ):
            self._exact = self._divide(tensors)
        for bucket in self._exact:
            bucket.pack()
            torch.mul(world.all_reduce(bucket.flat), 1.0 / world.world_size(), out=bucket.flat)
            bucket.unpack()

    def _divide(self, tensors: Sequence[torch.Tensor]) -> list[_Bucket]:
        limit = self._exchange.limit_mb
        # Nothing runs beside an average that small first or last messages could overlap with.
        found = make_buckets(tensors, limit_mb=limit, first_mb=limit, last_mb=0.0)
        return [_Bucket([tensors[i] for i in bucket.members]) for bucket in found]

    def _lay_out(self, trained: Parameters) -> None:
        """Have buckets with snapshots of exactly these parameters."""
        if self._laid_out == [id(t) for t in trained.values()]:
            return
        state = self._loaded or self.state_dict()
        self._loaded = {}
        tensors = list(trained.values())
        names = {id(t): name for name, t in trained.items()}
        self._buckets = self._divide(tensors)
        self._laid_out = [id(t) for t in tensors]
        self._names = [names[id(t)] for bucket in self._buckets for t in bucket.tensors]
        rest = iter(self._names)
        for bucket in self._buckets:
            bucket.pack()
            bucket.snapshot = bucket.flat.clone()
            own = [next(rest) for _ in bucket.tensors]
            _fill(bucket.views(bucket.snapshot), own, state["snapshot"])
            if state["velocity"]:
                bucket.velocity = torch.zeros_like(bucket.flat)
                _fill(bucket.views(bucket.velocity), own, state["velocity"])

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return snapshots and velocities by the names of their parameters."""
        state: dict[str, dict[str, torch.Tensor]] = {"snapshot": {}, "velocity": {}}
        if not self.keeps_snapshot or self._loaded:
            return self._loaded or state
        rest = iter(self._names)
        for bucket in self._buckets:
            own = [next(rest) for _ in bucket.tensors]
            for kind, flat in (("snapshot", bucket.snapshot), ("velocity", bucket.velocity)):
                if flat is not None:
                    state[kind].update(zip(own, bucket.views(flat.clone()), strict=True))
        return state

    def load_state_dict(self, state: dict[str, dict[str, torch.Tensor]]) -> None:
        """Load what `state_dict` returned, as soon as the parameters are known."""
        self._loaded = state
        self._laid_out = []


def _fill(
    parts: Sequence[torch.Tensor], names: Sequence[str], values: Mapping[str, torch.Tensor]
) -> None:
    for part, name in zip(parts, names, strict=True):
        if name in values:
            part.copy_(values[name])
