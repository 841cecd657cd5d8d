"""Averaging the parameters of a PyTorch module over all workers, in flat buckets kept between
averages.

By default the values themselves are all-reduced and no state is kept. A snapshot of the last
average is kept if differences from it are needed: because they are sent in few bits, because of an
outer momentum (SlowMo, DiLoCo), or because the average overlaps with training (`start` and
`finish`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from fleetx.comm.buckets import make_buckets
from fleetx.comm.gradient_all_reduce import (
    AllReduceSettings,
    GradientAllReduce,
    GradientExchange,
    Handle,
)
from fleetx.comm.share_sums import ShareSums
from fleetx.kernels.local_sgd import take_outer_step
from fleetx.runtime import heartbeat
from fleetx.step.settings import setting
from fleetx.step.stages import Parameters
from fleetx.techniques.flat_bucket import REFERENCE, SNAPSHOT, VELOCITY, FlatBucket
from fleetx.techniques.rounded_sum import GatheredSum, SumOfShares, rides

State = dict[str, dict[str, torch.Tensor]]
MEAN = "mean"
"""In a state: the mean difference that has arrived and is not applied yet."""
WHOLE = 32
"""Bits of differences that travel as they are."""


@dataclass(frozen=True, kw_only=True)
class AverageConfig:
    """The settings that all ways of averaging parameters share."""

    begin_step: int = setting(1, number=2, since="2.0", least=0)
    """Average in every step up to this one."""
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
    overlap_steps: int = setting(0, number=1007, least=0)
    """Steps between the start of an average and its application; training continues meanwhile."""
    fragments: int = setting(1, number=1008, least=1)
    """Fragments of the model that are averaged in turn, each once per interval."""
    blend: float = setting(1.0, number=1009, above=0)
    """How far parameters move towards an average, at most 1: all the way."""
    keep_local_steps: bool = setting(True, number=1010)
    """Keep the updates made during the exchange; Streaming DiLoCo does not."""
    exchange_bits: int = setting(32, number=1011)
    """Bits per entry of the differences: 32 (uncompressed), 8 or 4 (quantised)."""
    sum_by_shares: bool = setting(False, number=1012)
    """Each worker adds up a share of the quantised differences, and quantises the sum: fewer bytes
    from three workers on."""


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


@dataclass(frozen=True, kw_only=True)
class Blend:
    """How differences are sent during training, and how parameters follow the average."""

    share: float = 1.0
    """How far they move to it: 1 is all the way."""
    keep_local_steps: bool = False
    """Keep the updates made during the exchange."""
    bits: int = WHOLE
    """Bits per entry of the differences: 32, 8 or 4."""
    by_shares: bool = False
    """Each worker adds up a share of rounded differences."""


class ParameterAverage:
    """Averages tensors over all workers; all of them must call it together."""

    def __init__(
        self,
        exchange: GradientExchange,
        outer: OuterStep,
        blend: Blend | None = None,
        sums: ShareSums | None = None,
    ) -> None:
        self._exchange = exchange
        self._outer = outer
        self._blend = blend or Blend()
        self._sums = sums
        # Half precision and quantisation are for differences only, not for statistics and momenta.
        self._whole = None if blend is None else GradientAllReduce(AllReduceSettings())
        self.keeps_snapshot = (
            exchange.all_reduce.settings.dtype is not None
            or not outer.is_plain
            or blend is not None
        )
        self._buckets: list[FlatBucket] = []
        self._laid_out: list[int] = []
        self._names: list[str] = []
        self._exact: list[FlatBucket] = []
        self._handles: list[tuple[Handle, list[FlatBucket]]] = []
        self._loaded: State = {}
        self._loaded_means: list[torch.Tensor] = []
        self.is_under_way = False
        """Whether an average is in flight."""

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
        for bucket in self._buckets:
            self._move_snapshot(bucket, is_outer=not is_begin)
            bucket.follow(1.0)
        self._average_exactly(others)

    # ---- while training goes on

    @torch.no_grad()
    def start(self, trained: Parameters, others: Sequence[torch.Tensor], *, overlaps: bool) -> None:
        """Start averaging in the background; `finish` applies the result.

        `overlaps`: updates may follow before that.
        """
        self._lay_out(trained)
        self._lay_out_exact(others)
        keep = overlaps and self._blend.keep_local_steps
        for bucket in self._buckets:
            bucket.pack_difference(keep_reference=keep)
        for bucket in self._exact:
            bucket.pack()
        if self._blend.bits == WHOLE:
            alone = self._exact
            for bucket in self._buckets:
                self._handles.append((self._exchange.all_reduce.start(bucket.flat), [bucket]))
        else:
            alone = self._start_rounded()
        for bucket in alone:
            assert self._whole is not None
            self._handles.append((self._whole.start(bucket.flat), [bucket]))
        self.is_under_way = True

    def _start_rounded(self) -> list[FlatBucket]:
        """Start sums of the rounded differences; return the buckets that do not ride with them."""
        riders = [bucket for bucket in self._exact if rides(bucket)]
        bits = self._blend.bits
        for bucket in self._buckets:
            handle: Handle
            if self._sums is None:
                handle = GatheredSum(bucket, bits, riders)
            else:
                handle = SumOfShares(bucket, bits, riders, self._sums)
            self._handles.append((handle, [bucket, *riders]))
            riders = []
        return [bucket for bucket in self._exact if not rides(bucket)]

    @torch.no_grad()
    def finish(self, trained: Parameters, others: Sequence[torch.Tensor]) -> None:
        """Wait for the average in flight, and apply it to the parameters."""
        self._arrive()
        self._lay_out(trained)
        self._lay_out_exact(others)
        for bucket in self._buckets:
            self._move_snapshot(bucket, is_outer=True)
            bucket.follow(self._blend.share)
        for bucket in self._exact:
            mean = bucket.flat.clone()
            bucket.pack()
            # Between two values that are both valid: a variance never becomes negative.
            bucket.flat.lerp_(mean, self._blend.share)
            bucket.unpack()
        self.is_under_way = False

    def _arrive(self) -> None:
        """Wait until the flat memories hold the means; nothing else changes."""
        with heartbeat.collective("parameter average"):
            while self._handles:
                handle, buckets = self._handles.pop(0)
                handle.wait()
                for bucket in buckets:
                    bucket.flat.mul_(1.0 / self._exchange.all_reduce.workers)
        heartbeat.beat()

    def _move_snapshot(self, bucket: FlatBucket, *, is_outer: bool) -> None:
        """Take the mean difference off the snapshot, by an outer step if there are any."""
        change = bucket.flat
        if is_outer and not self._outer.is_plain:
            change = self._outer.change(bucket.flat, bucket.memory(VELOCITY))
        bucket.kept[SNAPSHOT].sub_(change)

    # ---- all at once

    def _sum(self, buckets: Sequence[FlatBucket]) -> None:
        """Replace every bucket by the mean over the workers."""
        with heartbeat.collective("parameter average"):
            handles = [self._exchange.all_reduce.start(bucket.flat) for bucket in buckets]
            for handle, bucket in zip(handles, buckets, strict=True):
                handle.wait()
                # Behind the sum, as in programs: small differences keep their bits in float16.
                bucket.flat.mul_(1.0 / self._exchange.all_reduce.workers)
        heartbeat.beat()

    def _average_exactly(self, tensors: Sequence[torch.Tensor]) -> None:
        """Average what has no snapshot; half precision is for differences only."""
        self._lay_out_exact(tensors)
        for bucket in self._exact:
            bucket.pack()
            bucket.flat.copy_(self._exchange.all_reduce.mean(bucket.flat))
            bucket.unpack()

    # ---- memory

    def _divide(self, tensors: Sequence[torch.Tensor]) -> list[FlatBucket]:
        limit = self._exchange.limit_mb
        # Nothing runs beside an average that small first or last messages could overlap with.
        found = make_buckets(tensors, limit_mb=limit, first_mb=limit, last_mb=0.0)
        return [FlatBucket([tensors[i] for i in bucket.members]) for bucket in found]

    def _lay_out_exact(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have buckets of exactly these tensors; a mean that has arrived stays in its place."""
        known = [t for bucket in self._exact for t in bucket.tensors]
        if len(known) == len(tensors) and all(a is b for a, b in zip(known, tensors, strict=True)):
            return
        means = self._loaded_means or [bucket.flat for bucket in self._exact]
        self._loaded_means = []
        self._exact = self._divide(tensors) if tensors else []
        if self.is_under_way:
            for bucket, mean in zip(self._exact, means, strict=True):
                bucket.flat.copy_(mean)

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
        for bucket, own in self._named():
            bucket.pack()
            bucket.kept[SNAPSHOT] = bucket.flat.clone()
            for kind, values in state.items():
                if kind == MEAN:
                    bucket.fill(bucket.flat, own, values)
                elif any(name in values for name in own):
                    bucket.fill(bucket.memory(kind), own, values)

    def _named(self) -> Iterator[tuple[FlatBucket, list[str]]]:
        """Yield the buckets with the names of their parameters."""
        rest = iter(self._names)
        for bucket in self._buckets:
            yield bucket, [next(rest) for _ in bucket.tensors]

    def state_dict(self) -> State:
        """Return what is kept, by kind and by the names of parameters.

        Waits for an average in flight, which needs no action of other workers: the state includes
        the resulting means.
        """
        state: State = {SNAPSHOT: {}, VELOCITY: {}}
        if not self.keeps_snapshot or self._loaded:
            return self._loaded or state
        if self.is_under_way:
            self._arrive()
            state |= {MEAN: {}, REFERENCE: {}}
        for bucket, own in self._named():
            kept = {**bucket.kept, MEAN: bucket.flat} if self.is_under_way else bucket.kept
            for kind, flat in kept.items():
                parts = bucket.views(flat.clone())
                state.setdefault(kind, {}).update(zip(own, parts, strict=True))
        return state

    def means_of_others(self) -> list[torch.Tensor]:
        """Return the means of statistics and momenta that have arrived and are not applied yet."""
        if not self.is_under_way:
            return []
        self._arrive()
        return self._loaded_means or [bucket.flat.clone() for bucket in self._exact]

    def load_state_dict(
        self, state: State, *, is_under_way: bool = False, others: Sequence[torch.Tensor] = ()
    ) -> None:
        """Load what `state_dict` and `means_of_others` returned, as soon as the parameters are
        known."""
        self._handles = []
        self._loaded = state
        self._laid_out = []
        self._exact = []
        self._loaded_means = list(others)
        self.is_under_way = is_under_way
