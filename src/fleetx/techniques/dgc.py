"""dgc: deep gradient compression. Only the largest entries of a gradient are sent, as (index,
value).

Each worker keeps a velocity and a residual, sends the largest entries of the residual in one
`all_gather`, and clears both where it sent (factor masking). The sent values include the momentum,
so the update is plain SGD. Small parameters, those that are not float32, and all of them before
`rampup_begin_step` are averaged whole and updated by ordinary momentum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from fleetx.comm import world
from fleetx.comm.layout import Workers
from fleetx.comm.top_k import Entries, gather_entries
from fleetx.kernels.compression import (
    SMALLEST,
    SparsitySchedule,
    compress,
    entries,
    update_entries,
)
from fleetx.kernels.descent import momentum
from fleetx.kernels.gradients import clip_locally
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import GradientSync, LocalGradients, Parameters, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.replaced_optimizer import ReplacedOptimizer

Received = dict[Tensor, list[Entries]]
"""For each compressed parameter the entries that all workers sent, by rank."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """When gradients are compressed, and how far."""

    rampup_begin_step: int = setting(0, number=1, since="2.0", least=0)
    """Step from which gradients are compressed."""
    rampup_step: int = setting(1, number=2, since="2.0", least=1)
    """Steps over which the sparsities are applied in turn."""
    sparsity: tuple[float, ...] = setting((), number=3, since="2.0", element=float)
    """Shares of gradient entries that are not sent; [0.999] if empty."""
    local_clip_norm: float = setting(0.0, number=1001, least=0)
    """Norm to which each worker clips a compressed gradient, times workers ** -0.5; 0 for none."""
    keep_rate: bool = setting(False, number=1002)
    """Residuals keep the learning rate of the step that produced them, not of the step that
    sends them.
    """


class DgcMomentum(ReplacedOptimizer):
    """Updates with what `DgcExchange` received; made from torch's SGD, whose groups it shares."""

    def __init__(self, inner: SGD) -> None:
        super().__init__((), inner.defaults, inner)
        self.received: Received = {}
        self.keep_rate = False
        """Whether received values include the learning rate."""
        self._zeros = torch.zeros(0)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters."""
        loss = super().step(closure)
        self.received = {}
        return loss

    def _update(self, group: dict[str, Any]) -> None:
        rate = None if self.keep_rate else float(group["lr"])
        for parameter in group["params"]:
            if parameter in self.received:
                sent = self.received[parameter]
                update_entries(parameter.data, sent, rate, self._zeros_for(parameter))
            elif parameter.grad is not None:
                self._ordinary(parameter, group)

    def _zeros_for(self, parameter: Tensor) -> Tensor:
        """Return flat zeros of at least a parameter's size, kept between steps."""
        zeros = self._zeros
        if zeros.numel() < parameter.numel() or zeros.device != parameter.device:
            zeros = self._zeros = torch.zeros(parameter.numel(), device=parameter.device)
        return zeros

    def _ordinary(self, parameter: Tensor, group: dict[str, Any]) -> None:
        rate = torch.as_tensor(group["lr"], dtype=torch.float64)
        momentum(
            parameter.data,
            parameter.grad,  # type: ignore[arg-type]
            self.velocity(parameter),
            rate,
            mu=group["momentum"],
            use_nesterov=group["nesterov"],
            regularization_method="l2_decay" if group["weight_decay"] else "",
            regularization_coeff=group["weight_decay"],
        )

    def velocity(self, parameter: Tensor) -> Tensor:
        """Return a parameter's velocity, zero at first."""
        return self._state(parameter, "momentum_buffer")

    def held_back(self, parameter: Tensor) -> Tensor:
        """Return this worker's residual, zero at first."""
        return self._state(parameter, "held_back")

    def _state(self, parameter: Tensor, name: str) -> Tensor:
        state = self.state[parameter]
        if name not in state:
            state[name] = torch.zeros_like(parameter.data, memory_format=torch.contiguous_format)
        found: Tensor = state[name]
        return found


class DgcExchange(GradientSync):
    """Exchanges the largest entries of large gradients, and the others whole."""

    during_backward = False

    def __init__(
        self, schedule: SparsitySchedule, local_clip_norm: float, among: Workers = world
    ) -> None:
        """`among`: the workers that exchange."""
        self._among = among
        self.schedule = schedule
        self.local_clip_norm = local_clip_norm
        self.step = 0
        self.optimizer: DgcMomentum | None = None

    @torch.no_grad()
    def exchange(self, parameters: Parameters) -> None:
        """Send and receive; the optimizer finds compressed gradients in `received`."""
        assert self.optimizer is not None
        share = self.schedule.at(self.step)
        groups = {p: g for g in self.optimizer.param_groups for p in g["params"]}
        trained = [p for p in parameters.values() if p.requires_grad]
        large = [p for p in trained if share and is_compressed(p)]
        whole = [p for p in trained if not any(p is q for q in large)]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in whole]
        for p, mean in zip(whole, self._among.all_reduce_mean(grads), strict=True):
            p.grad = mean
        sent = []
        for p in large:
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            if self.local_clip_norm and self.step >= self.schedule.begin:
                grad = clip_locally(grad, self.local_clip_norm)
            group = groups[p]
            if group["weight_decay"]:
                grad = grad.add(p, alpha=group["weight_decay"])
            sent.append(
                compress(
                    self.optimizer.velocity(p),
                    self.optimizer.held_back(p),
                    grad,
                    entries(p.numel(), share),
                    mu=group["momentum"],
                    nesterov=group["nesterov"],
                    rate=float(group["lr"]) if self.optimizer.keep_rate else 1.0,
                )
            )
        received = gather_entries(sent, self._among)
        self.optimizer.received = dict(zip(large, received, strict=True))
        self.step += 1

    @torch.no_grad()
    def begin_as_newcomer(self) -> None:
        """Discard residuals of another worker, which sends them itself."""
        assert self.optimizer is not None
        for state in self.optimizer.state.values():
            if "held_back" in state:  # its velocity is of that worker's gradients too
                state["held_back"].zero_()
                state["momentum_buffer"].zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the schedule; velocities are in the optimizer's state."""
        assert self.optimizer is not None
        return {"step": self.step, "keep_rate": self.optimizer.keep_rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the schedule."""
        self.step = int(state["step"])


def without_held_back(state: dict[str, Any], techniques: dict[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state for plain momentum: the residual is added to the velocity.

    It then takes effect over the next steps, with the same total.
    """
    exchange = techniques.get("grad_sync", {})
    keep_rate = exchange.get("inner", exchange).get("keep_rate", False)
    groups = {i: group for group in state["param_groups"] for i in group["params"]}
    changed = {}
    for i, own in state["state"].items():
        held_back = own.get("held_back")
        if held_back is not None:
            rest = {name: value for name, value in own.items() if name != "held_back"}
            mu = groups[i]["momentum"]
            velocity = rest.get("momentum_buffer")
            rate = float(groups[i]["lr"]) if keep_rate else 1.0
            share = held_back * ((1.0 - mu) / mu / rate)
            own = {**rest, "momentum_buffer": share if velocity is None else velocity + share}
        changed[i] = own
    return {**state, "state": changed}


def is_compressed(parameter: Tensor) -> bool:
    """Return whether a parameter's gradient is large enough to be worth compressing."""
    fits = parameter.numel() >= SMALLEST and parameter.dtype is torch.float32
    return fits and parameter.is_contiguous()


@register
class Dgc(Technique[Config]):
    """Deep gradient compression: only the largest entries are sent."""

    name = "dgc"
    order = Order.UPDATE
    since, numbers = "2.0", (5, 105)
    replaces = frozenset({Stage.GRAD_SYNC, Stage.UPDATE})
    refuses = {
        "fp16_allreduce": "dgc sends single entries, which fp16_allreduce does not convert",
    }
    needs_workers = True
    differs_by_worker = True
    between_copies = True

    def __init__(self, job: Any) -> None:
        super().__init__(job)
        self._exchange: DgcExchange | None = None

    def _schedule(self) -> SparsitySchedule:
        return SparsitySchedule(
            begin=self.config.rampup_begin_step,
            ramp=self.config.rampup_step,
            sparsities=self.config.sparsity or (0.999,),
        )

    def check(self) -> None:
        """Reject an invalid schedule, and settings of an all-reduce, which dgc does not use."""
        self._schedule()
        if self.job.all_reduce.group_size:
            raise ValueError(
                "dgc sends to all workers at once and cannot follow use_hierarchical_allreduce: "
                "switch off one of them."
            )

    def check_optimizer(self, optimizer: Any) -> None:
        """Refuse optimizers other than momentum."""
        from fleetx.static.optimizer import DGCMomentumOptimizer, MomentumOptimizer

        if isinstance(optimizer, DGCMomentumOptimizer | MomentumOptimizer):
            return
        name = type(optimizer).__name__
        if not isinstance(optimizer, SGD) or name == "DgcMomentum":
            raise ValueError(
                f"dgc works on momentum, not on {name}: use torch.optim.SGD(..., momentum=0.9) "
                "or switch off dgc."
            )
        for group in optimizer.param_groups:
            if not group["momentum"] or group["dampening"] or group["maximize"]:
                raise ValueError(
                    "dgc needs SGD with momentum, without dampening and maximize: set "
                    "momentum=0.9, or switch off dgc."
                )

    def change_step(self, step: TrainStep) -> None:
        """Exchange after backward."""
        limit = self.config.local_clip_norm * self.job.copies**-0.5
        layout = self.job.layout
        among: Workers = world if layout.is_plain else layout.group("dp")
        self._exchange = DgcExchange(self._schedule(), limit, among)
        step.grad_sync = self._exchange

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Update with what was received."""
        assert isinstance(optimizer, SGD)
        assert self._exchange is not None
        replaced = DgcMomentum(optimizer)
        replaced.keep_rate = self.config.keep_rate
        self._exchange.optimizer = replaced
        return replaced

    def change_program(self, step: ProgramStep) -> None:
        """Make the momentum optimizer one that compresses."""
        from fleetx.static.optimizer import DGCMomentumOptimizer

        inner, config = step.update, self.config
        if not isinstance(inner, DGCMomentumOptimizer):
            settings = inner.settings()
            settings.pop("rescale_grad", None)
            if config.local_clip_norm:
                settings["grad_clip"] = self._local_clip(settings["grad_clip"])
            inner = DGCMomentumOptimizer(
                **settings,
                rampup_begin_step=config.rampup_begin_step,
                rampup_step=config.rampup_step,
                sparsity=list(config.sparsity),
                num_trainers=self.job.workers,
                keep_rate=config.keep_rate,
            )
            inner.share_state(step.update)
        step.update, step.grad_sync = inner, LocalGradients()

    def _local_clip(self, own: Any) -> Any:
        """Return the clip of each worker's gradients for a program whose optimizer has none."""
        from fleetx.static.clip import GradientClipByNorm

        norm = self.config.local_clip_norm
        if own is not None:
            raise ValueError(
                f"dgc_configs['local_clip_norm'] is {norm:g}, but the optimizer has a grad_clip "
                "already, and each worker clips once: remove one of them."
            )
        return GradientClipByNorm(norm)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the bytes of a step at the last sparsity, and the memory of the residuals."""
        share = self._schedule().sparsities[-1]
        large = [n for n in sizes.elements if n >= SMALLEST]
        small = sum(n for n in sizes.elements if n < SMALLEST)
        others = self.job.copies - 1
        sent = 8.0 * others * sum(entries(n, share) for n in large) if share else 0.0
        whole = 8.0 * others / self.job.copies * (small if share else sum(sizes.elements))
        return [
            Row(
                stage=Stage.GRAD_SYNC,
                technique=self.name,
                settings=f"sparsity {share:g} from step {self.config.rampup_begin_step}",
                bytes_sent=sent + whole,
                memory=4.0 * (sum(large) + max(large, default=0)),
            ),
            Row(stage=Stage.UPDATE, technique=self.name, settings="momentum before compression"),
        ]
