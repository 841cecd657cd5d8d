"""powersgd: workers all-reduce two thin factors of each gradient matrix instead of the matrix.

PowerSGD (https://arxiv.org/abs/1905.13727) as PyTorch computes it: its communication hook for DDP
gets gradients by name instead of DDP's buckets, and its state between steps (residuals, factors to
start from) is kept in named tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from fleetx.comm import world
from fleetx.comm.buckets import DEFAULT_MB, make_buckets
from fleetx.comm.device import device_of_messages
from fleetx.runtime import heartbeat
from fleetx.step.compression import RESIDUAL
from fleetx.step.named_stages import NamedExchange, State
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import Stage
from fleetx.step.technique import Order, Row, Sizes, Technique, ring_bytes
from fleetx.step.train_step import TrainStep

FACTOR, STEPS = "@POWERSGD_Q", "@POWERSGD_STEPS"
_TINY = 1e-8
"""Keeps a gradient of zeros from being divided by its norm."""
_DDP_STEPS = 2
"""Steps that the hook leaves to DDP for building its buckets; here there is nothing to wait for."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of torch's `PowerSGDState`, under its names."""

    matrix_approximation_rank: int = setting(1, least=1)
    """Columns of the two factors; more of them lose less and send more."""
    start_powerSGD_iter: int = setting(1000, least=0)
    """Steps with a plain all-reduce before compression starts."""
    min_compression_rate: float = setting(2.0, above=0)
    """A tensor is compressed if its factors are smaller by more than this factor."""
    use_error_feedback: bool = True
    """Add the compression error to the next gradient."""
    warm_start: bool = True
    """Start from the factors of the step before instead of random ones."""


class Factors(NamedTuple):
    """The shape of a gradient as a matrix, and the columns of its factors."""

    rows: int
    columns: int
    rank: int

    @property
    def elements(self) -> int:
        """The elements of both factors."""
        return (self.rows + self.columns) * self.rank


def factors(shape: Sequence[int], config: Config) -> Factors | None:
    """Return how a tensor is compressed; None if it is worth more as it is."""
    if len(shape) < 2 or not prod(shape):
        return None
    rows, columns = shape[0], prod(shape[1:])
    found = Factors(rows, columns, min(rows, columns, config.matrix_approximation_rank))
    return found if found.elements * config.min_compression_rate < rows * columns else None


class FlatGradients:
    """Gradients in one flat tensor, as torch's hook asks a bucket of DDP for them."""

    def __init__(self, gradients: Sequence[Tensor]) -> None:
        self._flat = torch.cat([g.reshape(-1) for g in gradients])
        self._flat = self._flat.to(device_of_messages(self._flat))
        parts = self._flat.split([g.numel() for g in gradients])
        self._parts = [part.view(g.shape) for part, g in zip(parts, gradients, strict=True)]

    def buffer(self) -> Tensor:
        """Return the flat tensor."""
        return self._flat

    def gradients(self) -> list[Tensor]:
        """Return the gradients in it."""
        return self._parts

    def index(self) -> int:
        """Return under which number the hook keeps its state."""
        return 0

    def is_last(self) -> bool:
        """Return False: steps are counted here, not by the hook."""
        return False


class LowRankExchange(NamedExchange):
    """Averages gradients by all-reduces of their factors, those not worth it as they are."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config
        self._memory = PowerSGDState(
            None,  # the default group, without holding it
            matrix_approximation_rank=config.matrix_approximation_rank,
            start_powerSGD_iter=_DDP_STEPS,
            min_compression_rate=cast("Any", config.min_compression_rate),
            use_error_feedback=config.use_error_feedback,
            orthogonalization_epsilon=cast("Any", _TINY),
        )
        self._memory.iter = _DDP_STEPS + 1

    def _factors(self, gradient: Tensor) -> Factors:
        found = factors(gradient.shape, self._config)
        assert found is not None
        return found

    def first_state(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return residual, factor and number of steps for each gradient that is compressed."""
        state = {}
        for name, gradient in gradients.items():
            found = factors(gradient.shape, self._config)
            if found is not None:
                state[name + STEPS] = torch.zeros(1, dtype=torch.int64)
                if self._config.use_error_feedback:
                    state[name + RESIDUAL] = torch.zeros_like(gradient)
                if self._config.warm_start:
                    state[name + FACTOR] = gradient.new_zeros(found.columns, found.rank)
        return state

    @torch.no_grad()
    def mean(self, gradients: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
        """Return the means over all workers, of low rank where they are compressed."""
        if not world.is_connected():
            return dict(gradients)
        world.meet()
        ages = self._count(gradients, state)
        low = [name for name, age in ages.items() if age >= 0]
        whole = {n: g for n, g in gradients.items() if ages.get(n, -1) < 0}
        # In flight while the others are compressed.
        whole_means = world.start_all_reduce_mean(list(whole.values()))
        means: dict[str, Tensor] = {}
        # The hook keeps the factors of matrices of one shape side by side.
        low.sort(key=lambda name: self._factors(gradients[name]))
        tensors = [gradients[name] for name in low]
        for bucket in make_buckets(tensors, first_mb=DEFAULT_MB, last_mb=0):
            names = [low[i] for i in bucket.members]
            age = max(ages[name] for name in names)
            means |= self._low_rank_means({n: gradients[n] for n in names}, state, age)
        found = zip(whole.items(), whole_means(), strict=True)
        means |= {name: _like(gradient, mean) for (name, gradient), mean in found}
        return {name: means[name] for name in gradients}

    def _count(self, gradients: Mapping[str, Tensor], state: State) -> dict[str, int]:
        """Count this step; return the compressed steps so far, negative ones before the first."""
        counters = {name: state[name + STEPS] for name in gradients if name + STEPS in state}
        if not counters:
            return {}
        steps = torch.cat(list(counters.values())).tolist()  # waits for a GPU once, not for each
        for counter in counters.values():
            counter.add_(1)
        start = self._config.start_powerSGD_iter
        return {name: step - start for name, step in zip(counters, steps, strict=True)}

    def _low_rank_means(
        self, gradients: Mapping[str, Tensor], state: State, age: int
    ) -> dict[str, Tensor]:
        """Let torch's hook exchange gradients of one type, with its state going in and out."""
        bucket, memory = FlatGradients(list(gradients.values())), self._memory
        flat = bucket.buffer()
        residuals, starts = self._kept(gradients, state)
        if residuals:
            memory.error_dict[0] = torch.cat([r.reshape(-1) for r in residuals]).to(flat.device)
        found = [self._factors(g) for g in gradients.values()]
        memory.p_memory_dict[0] = flat.new_empty(sum(f.rows * f.rank for f in found))
        memory.q_memory_dict[0] = self._first_factors(gradients, starts, age).to(flat.device)
        with heartbeat.collective("powersgd"):
            powerSGD_hook(memory, cast("Any", bucket)).wait()
        if residuals:
            _copy_parts(memory.error_dict.pop(0), residuals)
        if starts:
            _copy_parts(memory.q_memory_dict[0], starts)
        memory.q_memory_dict.clear()
        memory.p_memory_dict.clear()
        parts = zip(gradients.items(), bucket.gradients(), strict=True)
        return {name: _like(gradient, part) for (name, gradient), part in parts}

    def _kept(
        self, gradients: Mapping[str, Tensor], state: State
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the residuals and the last factors of gradients, as far as they are kept."""
        config = self._config
        residuals = [state[n + RESIDUAL] for n in gradients if config.use_error_feedback]
        return residuals, [state[n + FACTOR] for n in gradients if config.warm_start]

    def _first_factors(
        self, gradients: Mapping[str, Tensor], starts: Sequence[Tensor], age: int
    ) -> Tensor:
        """Return the factors to start from, concatenated.

        Random columns take the place of those that are not there or 0: from zeros, which a gradient
        of zeros leaves behind, no step would find back.
        """
        self._memory.rng.seed(age)
        seed = int(self._memory.rng.randint(1_000_000_000))  # the hook's own one, if it drew it
        generator = torch.Generator().manual_seed(seed)
        found = []
        for gradient in gradients.values():
            _, columns, rank = self._factors(gradient)
            found.append(torch.randn(columns, rank, generator=generator, dtype=gradient.dtype))
        if starts:
            pairs = zip(starts, found, strict=True)
            found = [torch.where(s.any(0), s, noise.to(s.device)) for s, noise in pairs]
        return torch.cat([factor.reshape(-1) for factor in found])


def _copy_parts(flat: Tensor, targets: Sequence[Tensor]) -> None:
    """Copy a flat tensor into tensors, one after the other."""
    for part, target in zip(flat.split([t.numel() for t in targets]), targets, strict=True):
        target.copy_(part.view(target.shape))


def _like(gradient: Tensor, mean: Tensor) -> Tensor:
    """Return a mean on the device and in the memory layout of the gradient."""
    if gradient.is_contiguous():
        return mean.to(gradient.device)
    return torch.empty_like(gradient).copy_(mean)


@register
class PowerSgd(Technique[Config]):
    """Low-rank factors of gradients are sent."""

    name = "powersgd"
    order = Order.EXCHANGE
    replaces = frozenset({Stage.GRAD_SYNC})
    refuses = {
        "fp16_allreduce": "powersgd sends factors of gradients, which fp16_allreduce does not "
        "convert"
    }
    needs_workers = True
    differs_by_worker = True

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Exchange factors after backward."""
        step.grad_sync = LowRankExchange(self.config)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what a step sends once compression has started, and the memory of its state."""
        config, found = self.config, [factors(shape, self.config) for shape in sizes.shapes]
        both = list(zip(found, sizes.elements, strict=True))
        sent = sum(elements if f is None else f.elements for f, elements in both)
        kept = sum(elements for f, elements in both if f is not None) * config.use_error_feedback
        kept += sum(f.columns * f.rank for f in found if f is not None) * config.warm_start
        text = f"rank {config.matrix_approximation_rank} from step {config.start_powerSGD_iter}"
        text += ", error feedback" * config.use_error_feedback + ", warm start" * config.warm_start
        return [
            Row(
                stage=Stage.GRAD_SYNC,
                technique=self.name,
                settings=text,
                bytes_sent=ring_bytes(sent * sizes.element_bytes, self.job.workers),
                memory=float(kept * sizes.element_bytes),
            )
        ]
