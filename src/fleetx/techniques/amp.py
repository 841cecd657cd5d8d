"""amp: forward and backward in half precision, parameters and updates in single.

Stage precision. float16 has a loss scale, so that small gradients do not vanish: gradients are
multiplied by it where backward enters the model and divided by it where they leave it for a
parameter, so that `p.grad` is always unscaled. A step with an infinite or NaN gradient is skipped
on all workers, and the scale adapts to good and bad steps. bfloat16 needs no scale. If the script
does not select a type, the device does, and the scale is kept: it does no harm, and scripts that
read it or rely on skipped steps still work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fleetx.kernels.loss_scale import all_finite, follow_overflow
from fleetx.static.mixed_precision import (
    AutoMixedPrecisionLists,
    LossScaling,
    MixedPrecisionStage,
)
from fleetx.static.mixed_precision.program_casts import half_type, made_for
from fleetx.static.run.place import usual_device
from fleetx.step.gradient_sync import is_all_reduce
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import Effect, read, setting
from fleetx.step.stages import Parameters, Precision, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.amp_lists import CustomPrecision
from fleetx.techniques.scaled_backward import ScaledBackward
from fleetx.techniques.tensors_inside import map_tensors

_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_HALF = tuple(_TYPES.values())


@dataclass(frozen=True, kw_only=True)
class Config:
    """The loss scale, the type of half precision, and exceptions from its lists of ops."""

    init_loss_scaling: float = setting(32768.0, number=1, since="2.0", above=0)
    """Loss scale at the start."""
    incr_every_n_steps: int = setting(1000, number=2, since="2.0", least=1)
    """Steps without overflow before the scale grows."""
    decr_every_n_nan_or_inf: int = setting(2, number=3, since="2.0", least=1)
    """Overflows in a row before the scale shrinks."""
    incr_ratio: float = setting(2.0, number=4, since="2.0", above=0)
    """Factor by which the scale grows."""
    decr_ratio: float = setting(0.8, number=5, since="2.0", above=0)
    """Factor by which the scale shrinks."""
    use_dynamic_loss_scaling: bool = setting(True, number=6, since="2.0")
    """Change the scale during training."""
    custom_white_list: tuple[str, ...] = setting((), number=7, since="2.0", element=str)
    """Ops that also run in half precision."""
    custom_black_list: tuple[str, ...] = setting((), number=8, since="2.0", element=str)
    """Ops that also run in single precision."""
    custom_black_varnames: tuple[str, ...] = setting((), number=9, since="2.0", element=str)
    """Variables whose ops run in single precision."""
    use_pure_fp16: bool = setting(False, number=10, since="2.1", effect=Effect.REFUSED)
    """Keep parameters in float16."""
    use_fp16_guard: bool = setting(True, number=11, since="2.1", effect=Effect.NONE)
    """Use pure float16 only inside fp16_guard."""
    use_optimizer_fp16: bool = setting(False, number=12, since="2.4", effect=Effect.REFUSED)
    """Keep the optimizer's state in float16."""
    use_pure_bf16: bool = setting(False, number=13, since="2.5")
    """Use bfloat16 instead of float16, without a loss scale; parameters stay float32."""
    dtype: str = setting("auto", number=1001, choices=("auto", "float16", "bfloat16"))
    """The type of half precision: float16, bfloat16 (no loss scale), or auto: bfloat16 on CPUs,
    float16 on GPUs, with the loss scale that is set."""

    def __post_init__(self) -> None:
        if self.use_pure_bf16 and self.dtype == "float16":
            raise ValueError(
                "amp_configs has 'use_pure_bf16': True and 'dtype': 'float16', but a step has "
                "one type of half precision: leave one of them out."
            )

    def rules(self) -> MixedPrecisionRules:
        """Return the rules for the stages."""
        dtype = "bfloat16" if self.use_pure_bf16 else self.dtype
        scaling = LossScaling(**{n: getattr(self, n) for n in LossScaling.__dataclass_fields__})
        return MixedPrecisionRules(
            dtype=dtype,
            scaling=LossScaling.none() if dtype == "bfloat16" else scaling,
            white=frozenset(self.custom_white_list),
            black=frozenset(self.custom_black_list),
            black_names=frozenset(self.custom_black_varnames),
        )


@dataclass(frozen=True, kw_only=True)
class MixedPrecisionRules:
    """The precision of ops, and the loss scale."""

    dtype: str = "auto"
    """float16, bfloat16, or auto: the type that suits the device."""
    scaling: LossScaling = LossScaling()
    white: frozenset[str] = frozenset()
    """Paddle's names of further ops that run in half precision."""
    black: frozenset[str] = frozenset()
    """Paddle's names of further ops that run in single precision."""
    black_names: frozenset[str] = frozenset()
    """Parameters (in programs, variables) whose ops run in single precision."""

    def __post_init__(self) -> None:
        AutoMixedPrecisionLists(self.white, self.black, self.black_names)  # refuses overlaps

    @property
    def scales(self) -> bool:
        """Whether gradients are scaled inside the model: by the loss scale, or in float16 at least
        by the share of a worker."""
        return self.scaling.is_on or self.dtype != "bfloat16"

    def half(self, device: str) -> str:
        """Return `float16` or `bfloat16`, for a kind of device."""
        return made_for(device) if self.dtype == "auto" else self.dtype


class MixedPrecision(Precision):
    """Runs forward under autocast, scales gradients inside the model, and checks for overflow."""

    def __init__(
        self,
        config: MixedPrecisionRules,
        gather: Callable[[float], list[float]],
        addends: Callable[[], int],
    ) -> None:
        """`gather` returns the numbers of all workers that wait for each other in a step, `addends`
        how many workers' gradients are added up."""
        self.config = config
        self._gather = gather
        self._addends = addends
        rules = config.scaling
        self.scale = torch.tensor([rules.init_loss_scaling], dtype=torch.float32)
        self.good_steps = torch.zeros(1, dtype=torch.int32)
        self.bad_steps = torch.zeros(1, dtype=torch.int32)
        self._backward = ScaledBackward(self._factor) if config.scales else None
        self._custom: CustomPrecision | None = None
        if config.white or config.black or config.black_names:
            self._custom = CustomPrecision(config.white, config.black)

    # -- forward and backward -------------------------------------------------------------
    def wrap_forward(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return forward under autocast; its outputs are float32."""
        owner = getattr(forward, "__self__", None)
        model = owner if isinstance(owner, nn.Module) else None
        backward = self._backward
        if model is not None and backward is not None:
            backward.hook(model.parameters())

        def run(*args: Any, **kwargs: Any) -> Any:
            if backward is None:
                with self._context(model):
                    result = forward(*args, **kwargs)
                return map_tensors(result, _single)
            backward.begin_forward()
            args, kwargs = map_tensors((args, kwargs), backward.enter)
            with self._context(model):
                result = forward(*args, **kwargs)
            leave = partial(backward.leave, [])
            return map_tensors(result, lambda x: leave(_single(x)))

        return run

    def _context(self, model: nn.Module | None) -> AbstractContextManager[Any]:
        first = None if model is None else next(model.parameters(), None)
        device = "cpu" if first is None else first.device.type
        dtype = _TYPES[self.config.half(device)]
        stack = ExitStack()
        stack.enter_context(torch.autocast(device, dtype))
        if self._custom is not None:
            self._custom.half = dtype
        stack.enter_context(self._custom or nullcontext())
        return stack

    def _factor(self) -> float:
        """Return the factor of gradients inside the model.

        As in programs, which divide the gradient of the loss by the number of workers, it includes
        a worker's share of the mean, so that the same gradients overflow or underflow in float16.
        """
        return float(self.scale.item()) / self._addends()

    def watch(self, parameters: Parameters) -> None:
        """Find the parameters whose gradients are scaled, and those named in the settings."""
        half = next((name for name, p in parameters.items() if p.dtype is torch.float16), None)
        if half is not None:
            raise ValueError(
                f"parameter {half!r} is float16, but amp keeps parameters and their gradients in "
                "float32, because small values underflow in float16: leave out model.half(); amp "
                "casts automatically."
            )
        if self._backward is not None:
            self._backward.hook(parameters.values())
        if self._custom is not None:
            unknown = sorted(self.config.black_names - set(parameters))
            if unknown:
                raise ValueError(
                    f"custom_black_varnames names {', '.join(unknown)}, but the model has no such "
                    "parameter: take names from model.named_parameters()."
                )
            self._custom.keep_single([parameters[name] for name in self.config.black_names])

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss with gradients that start multiplied by the scale."""
        return loss if self._backward is None else self._backward.scaled(loss)

    def message_scale(self) -> float:
        """Return the loss scale: programs send scaled gradients, fewer of which underflow."""
        return float(self.scale.item())

    # -- the verdict ----------------------------------------------------------------------
    def expects_overflow(self) -> bool:
        """Return whether a smaller scale may still help against an overflow."""
        return self.config.scaling.is_on and self.scale.item() > 1.0

    def usable(
        self, parameters: Parameters, *, agreed: bool, others: Sequence[Tensor] = ()
    ) -> bool:
        """Return whether all gradients are finite on all workers, and adapt the scale."""
        rules = self.config.scaling
        if self._backward is not None:
            self._backward.end_step()
        if not rules.is_on:
            return True
        gradients = [p.grad for p in parameters.values() if p.grad is not None]
        overflow = not all_finite([*gradients, *others])
        if not agreed:
            overflow = any(self._gather(int(overflow)))
        if rules.use_dynamic_loss_scaling:
            follow_overflow(
                self.scale, self.good_steps, self.bad_steps, overflow=overflow, **rules.rules()
            )
        return not overflow

    def state_dict(self) -> dict[str, Any]:
        """Return the scale and the counts of good and bad steps."""
        return {
            "scale": self.scale.item(),
            "good_steps": int(self.good_steps.item()),
            "bad_steps": int(self.bad_steps.item()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self.scale.fill_(state["scale"])
        self.good_steps.fill_(state["good_steps"])
        self.bad_steps.fill_(state["bad_steps"])


def _single(x: Tensor) -> Tensor:
    """Return a tensor of half precision as float32, others as they are."""
    return x.float() if x.dtype in _HALF else x


@register
class Amp(Technique[Config]):
    """Mixed precision."""

    name = "amp"
    order = Order.PRECISION
    since, numbers = "2.0", (2, 102)
    keeps_mathematics = True
    replaces: ClassVar[frozenset[Stage]] = frozenset({Stage.PRECISION})

    @classmethod
    def trials(cls, strategy: Any, device: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the types that a device computes in, or the one that is set."""
        config = read(Config, strategy.amp_configs)
        named = config.rules().dtype
        types = ["bfloat16", *(["float16"] if device == "cuda" else [])]
        return [
            (f"amp {half}", {"amp": True, "amp_configs": {"dtype": half}})
            for half in (types if named == "auto" else [named])
        ]

    def check(self) -> None:
        """Reject pure half precision."""
        for key in ("use_pure_fp16", "use_optimizer_fp16"):
            if getattr(self.config, key):
                raise ValueError(
                    f"amp_configs[{key!r}] keeps parameters or optimizer state in float16, but "
                    f"FleetX keeps both in float32: set {key} to False."
                )
        self.config.rules()

    def change_step(self, step: TrainStep) -> None:
        """Put the precision into a step."""
        step.precision = MixedPrecision(
            self.config.rules(), self.job.gather, partial(self._addends, step)
        )

    def change_program(self, step: ProgramStep) -> None:
        """Cast ops, scale the loss and skip steps that overflow."""
        step.precision = MixedPrecisionStage(
            *stage_settings(self.config.rules()),
            skips_updates=True,
            checks_each=self.job.workers > 1 and self.job.servers is None,
            agrees_by=partial(self._agreement, step),
        )

    def _addends(self, step: TrainStep) -> int:
        """Return how many workers' gradients an all-reduce adds up, when all techniques are
        composed."""
        return max(1, self.job.workers) if is_all_reduce(step.grad_sync) else 1

    def _agreement(self, step: ProgramStep) -> str:
        """Return the op by which workers agree on an overflow, when all techniques are composed."""
        if self.job.servers is not None:
            return "agree_on_overflow"
        alike = self.job.workers < 2 or is_all_reduce(step.grad_sync)
        return "" if alike else "c_allreduce_max"

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the row of this stage; the saved memory depends on the activations."""
        config = self.config.rules()
        half = config.half(sizes.device)
        text = half if config.dtype != "auto" else f"{half} (auto: made for {sizes.device})"
        if config.scaling.is_on:
            kind = "dynamic" if config.scaling.use_dynamic_loss_scaling else "fixed"
            text += f", {kind} scale from {config.scaling.init_loss_scaling:g}"
        return [
            Row(
                stage=Stage.PRECISION,
                technique=self.name,
                settings=text,
                memory=None,
                short=f"{self.name} in {half}",
            )
        ]


def stage_settings(rules: MixedPrecisionRules) -> tuple[AutoMixedPrecisionLists, LossScaling, Any]:
    """Return the arguments of the precision stage of a program."""
    half = rules.half(usual_device())
    lists = AutoMixedPrecisionLists(rules.white, rules.black, rules.black_names, dtype=half)
    return lists, rules.scaling, half_type(half)
