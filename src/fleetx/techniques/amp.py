"""amp: forward and backward in half precision, parameters and updates in single.

Stage precision. float16 has a loss scale, so that small gradients do not vanish: gradients are
multiplied by it where backward enters the model and divided by it where they leave it for a
parameter, so that `p.grad` is always in true units. A step with an infinite or NaN gradient is
skipped on all workers, and the scale follows the run of good and bad steps. bfloat16 needs no
scale. If the script does not name the type, the device decides, and the scale stays: it does no
harm, and scripts that read it or rely on skipped steps find both.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fleetx import torch_private
from fleetx.kernels.loss_scale import all_finite, follow_overflow, unscaled
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
                "amp_configs says 'use_pure_bf16': True and 'dtype': 'float16', but a step has "
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
    """In which precision what runs, and how the loss is scaled."""

    dtype: str = "auto"
    """float16, bfloat16, or auto: what the device is made for."""
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


class _Multiply(torch.autograd.Function):
    """An identity whose backward multiplies gradients by what `factor` returns.

    `inputs_of` is the precision whose model begins behind it, where it stands in front of one.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, factor: Callable[[], float], inputs_of: MixedPrecision | None
    ) -> Tensor:
        ctx.factor, ctx.inputs_of = factor, inputs_of
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0] * ctx.factor(), None, None


class _BackwardPass:
    """The backward pass that runs now, if its loss is scaled."""

    def __init__(self) -> None:
        self.loss_scale = 1.0

    def begin(self, scale: float) -> None:
        """Note, until the pass ends, what all gradients in it are multiplied by."""
        self.loss_scale = scale
        _when_backward_ends(self.end)

    def end(self) -> None:
        """Clear the scale."""
        self.loss_scale = 1.0

    def unscale(self, grad: Tensor) -> Tensor:
        """Return the gradient of a leaf in true units."""
        return grad if self.loss_scale == 1.0 else unscaled(grad, self.loss_scale)


_PASS = _BackwardPass()
_IS_HOOKED = "_fleetx_unscaled"  # on parameters whose own hook is `_PASS.unscale`


class MixedPrecision(Precision):
    """Forward under autocast; gradients scaled on their way through the model.

    With `loss.backward()` the scale acts between the model's outputs on one side and its inputs and
    parameters on the other: what reaches a parameter from inside the model is divided by it before
    it is added to what comes from elsewhere, such as a penalty on weights. A backward pass that
    builds a graph of its own (`create_graph`) is not scaled, nor are those up to the next step.
    With `optimizer.scale(loss).backward()` and `optimizer.minimize(loss)` the loss itself is scaled
    and all that the pass reaches is divided, so that nothing depends on the way of a gradient.
    """

    def __init__(
        self,
        config: MixedPrecisionRules,
        gather: Callable[[int], list[int]],
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
        self._inside = 1.0  # what the pass that runs multiplies gradients inside the model by
        self._task = -1  # the number of that pass
        self._keeps_unscaled = False  # until the next step
        self._has_warned = False
        self._hooked: set[int] = set()
        self._custom: CustomPrecision | None = None
        if config.white or config.black or config.black_names:
            self._custom = CustomPrecision(config.white, config.black)

    # -- forward --------------------------------------------------------------------------
    def wrap_forward(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return forward under autocast; its outputs are float32."""
        owner = getattr(forward, "__self__", None)
        model = owner if isinstance(owner, nn.Module) else None
        if model is not None:
            self._hook(model.parameters())

        def run(*args: Any, **kwargs: Any) -> Any:
            if torch_private.current_graph_task_id() < 0:  # a pass that raised has left its marks
                self._end_backward()
                _PASS.end()
            args, kwargs = map_tensors((args, kwargs), self._enter)
            with self._context(model):
                result = forward(*args, **kwargs)
            # What the outputs were computed by; the graph is followed from there if it has to be.
            ends: list[Any] = []
            return map_tensors(result, partial(self._leave, ends))

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

    def _enter(self, x: Tensor) -> Tensor:
        """Return an input whose gradient leaves the model in true units."""
        if not (self.config.scales and x.requires_grad and torch.is_grad_enabled()):
            return x
        return _Multiply.apply(x, lambda: 1.0 / self._inside, self)  # type: ignore[no-any-return, no-untyped-call]

    def _leave(self, ends: list[Any], x: Tensor) -> Tensor:
        """Return an output in single precision whose gradient enters the model scaled."""
        x = x.float() if x.dtype in _HALF else x
        # A parameter that is returned as it is has nothing behind it that could be scaled.
        scales = self.config.scales and x.grad_fn is not None and torch.is_grad_enabled()
        if not scales:
            return x
        ends.append(x.grad_fn)
        return _Multiply.apply(x, partial(self._scale_at_output, ends), None)  # type: ignore[no-any-return, no-untyped-call]

    # -- backward -------------------------------------------------------------------------
    def _scale_at_output(self, ends: list[Any]) -> float:
        """Return by what gradients are multiplied that enter the model at an output."""
        if _PASS.loss_scale != 1.0:
            return 1.0
        if torch.is_grad_enabled():
            # Gradients that a later pass takes through the graph of this one come into the model
            # at other places than its outputs: nothing is scaled up to the next step.
            self._keeps_unscaled = True
            return 1.0
        if self._keeps_unscaled:
            self._warn_unscaled()
            return 1.0
        if self._inside == 1.0:
            self._inside, self._task = self._factor(), torch_private.current_graph_task_id()
            _when_backward_ends(self._end_backward)
        self._hook_edges(ends)
        ends.clear()
        return self._inside

    def _factor(self) -> float:
        """Return what gradients inside the model are multiplied by.

        Each is a worker's share of a mean there, as in programs, which divide the gradient of the
        loss by the number of workers: what overflows or vanishes in float16 is the same in both.
        """
        return float(self.scale.item()) / self._addends()

    def _end_backward(self) -> None:
        self._inside, self._task = 1.0, -1

    def _warn_unscaled(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "amp in float16 does not scale gradients in a backward pass that follows one with "
                "create_graph=True in the same step, so that small ones may become zero: call "
                "optimizer.minimize(loss) or optimizer.scale(loss).backward(), or use bfloat16.",
                stacklevel=2,
            )

    def _hook_edges(self, ends: Iterable[Any]) -> None:
        """Register hooks that divide gradients where they leave the graph of the model for a leaf.

        Only there: what reaches the same leaf from elsewhere is in true units.
        """
        waiting, seen = list(ends), set(ends)
        while waiting:
            node = waiting.pop()
            if getattr(node, "inputs_of", None) is self:
                continue
            leaves = []
            for place, (child, _) in enumerate(node.next_functions):
                if type(child).__name__ == "AccumulateGrad":
                    leaves.append(place)
                elif child is not None and child not in seen:
                    seen.add(child)
                    waiting.append(child)
            if leaves and self not in node.metadata:  # forward passes may share a cast
                node.metadata[self] = True
                node.register_hook(partial(self._divide, leaves))

    def _divide(
        self, places: Sequence[int], inputs: tuple[Tensor | None, ...], _: Any
    ) -> tuple[Tensor | None, ...] | None:
        if self._inside == 1.0:
            return None
        divided = list(inputs)
        for place in places:
            gradient = divided[place]
            if gradient is not None:
                divided[place] = unscaled(gradient, self._inside)
        return tuple(divided)

    def _hook(self, parameters: Iterable[Tensor]) -> None:
        """Register hooks that divide gradients at parameters in a scaled pass, or one inside it."""
        for parameter in parameters if self.config.scales else ():
            if id(parameter) in self._hooked:
                continue
            self._hooked.add(id(parameter))
            was = parameter.requires_grad
            parameter.requires_grad_()  # one frozen now may thaw
            if not hasattr(parameter, _IS_HOOKED):  # a model may be given to fleet again
                setattr(parameter, _IS_HOOKED, True)
                parameter.register_hook(_PASS.unscale)
            parameter.register_hook(self._unscale_nested)
            parameter.requires_grad_(was)

    def _unscale_nested(self, grad: Tensor) -> Tensor:
        """Divide a gradient of a pass inside the scaled one: a checkpoint calls backward itself."""
        if self._inside == 1.0 or torch_private.current_graph_task_id() == self._task:
            return grad
        return unscaled(grad, self._inside)

    def watch(self, parameters: Parameters) -> None:
        """Find the parameters whose gradients are scaled, and those that the settings name."""
        half = next((name for name, p in parameters.items() if p.dtype is torch.float16), None)
        if half is not None:
            raise ValueError(
                f"parameter {half!r} is float16, but amp keeps parameters and their gradients in "
                "float32, for small ones become zero in float16: leave out model.half(), amp casts "
                "by itself."
            )
        self._hook(parameters.values())
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
        if not self.config.scales or loss.grad_fn is None:
            return loss
        _PASS.end()
        return _Multiply.apply(loss, partial(self._scale_at_loss, [loss.grad_fn]), None)  # type: ignore[no-any-return, no-untyped-call]

    def _scale_at_loss(self, ends: list[Any]) -> float:
        scale = self._factor()
        _PASS.begin(scale)
        handles = [leaf.register_prehook(_unscale_all) for leaf in _others(ends)]
        ends.clear()

        def remove() -> None:
            for handle in handles:
                handle.remove()

        _when_backward_ends(remove)
        return scale

    # -- the verdict ----------------------------------------------------------------------
    def expects_overflow(self) -> bool:
        """Return whether a smaller scale may still help against an overflow."""
        return self.config.scaling.is_on and self.scale.item() > 1.0

    def usable(
        self, parameters: Parameters, *, agreed: bool, others: Sequence[Tensor] = ()
    ) -> bool:
        """Return whether all gradients are finite on all workers, and adapt the scale."""
        rules = self.config.scaling
        self._keeps_unscaled = False
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
        """Return the scale and the run of good and bad steps."""
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


def _when_backward_ends(callback: Callable[[], None]) -> None:
    """Register a callback with autograd's engine for the end of the current pass."""
    torch_private.execution_engine.queue_callback(callback)


def _others(ends: Iterable[Any]) -> list[Any]:
    """Return the accumulators of leaves in a graph that no precision has hooked."""
    waiting, seen, found = list(ends), set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ != "AccumulateGrad":
            waiting.extend(child for child, _ in node.next_functions)
        elif not hasattr(node.variable, _IS_HOOKED):
            found.append(node)
    return found


def _unscale_all(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(map(_PASS.unscale, gradients))


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
        """Refuse what is not mixed but pure half precision."""
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
        """Return the line of this stage; what it saves depends on the activations."""
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
