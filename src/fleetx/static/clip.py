"""Gradient clipping as ops: by value, by each gradient's norm, by the global norm.

A clip object is given to the optimizer (`grad_clip`), or to parameters through `set_gradient_clip`.
`ErrorClipByValue` bounds the gradient of one variable inside the backward pass.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.kernels.gradients import CLIP_EPSILON
from fleetx.static import layers
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.protobuf.sparse_gradients import selected_rows

Pairs = list[tuple[Any, Any]]


# -- inside the backward pass ----------------------------------------------------------------------
class BaseErrorClipAttr:
    """What `Variable.error_clip` may hold."""

    def _append_clip_op(self, block: Any, grad_name: str) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define how to clip.")


class ErrorClipByValue(BaseErrorClipAttr):
    """Clips the gradient of a variable to [min, max] before it flows on; min is -max by default."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def __str__(self) -> str:
        return f"ByValue, min={self.min:f}, max={self.max:f}"

    def _append_clip_op(self, block: Any, grad_name: str) -> None:
        block.append_op(
            "clip", {"X": [grad_name]}, {"Out": [grad_name]}, {"min": self.min, "max": self.max}
        )


def error_clip_callback(block: Any, context: dict[str, str]) -> None:
    """Clip the gradients of variables that have an `error_clip`.

    `append_backward` calls this; `context` maps gradients to the variables they belong to.
    """
    for grad_name, name in context.items():
        variable = block.var_recursive(name)
        clip = getattr(variable, "error_clip", None)
        if clip is None:
            continue
        if not isinstance(clip, BaseErrorClipAttr):
            raise TypeError(
                f"error_clip of variable {variable.name!r} must be an ErrorClipByValue, "
                f"not {type(clip).__name__}."
            )
        clip._append_clip_op(block, grad_name)


# -- gradients of parameters -----------------------------------------------------------------------
class GradientClipBase:
    """A way to clip gradients; calling it with (parameter, gradient) pairs appends the ops.

    A parameter is skipped if `need_clip`, a function of the parameter, returns False, or if its
    ParamAttr has need_clip=False.
    """

    def __init__(self, need_clip: Callable[[Any], bool] | None = None) -> None:
        if need_clip is not None and not callable(need_clip):
            raise TypeError(
                "need_clip must be a function that takes a parameter and returns whether to clip "
                f"its gradient, not {type(need_clip).__name__}."
            )
        self._need_clip_func = need_clip

    def __call__(self, params_grads: Sequence[tuple[Any, Any]]) -> Pairs:
        """Append the clip ops; return the pairs with the clipped gradients."""
        if any(getattr(p, "gradient_clip_attr", None) is not None for p, _ in params_grads):
            warnings.warn(
                "set_gradient_clip has no effect: the optimizer's grad_clip takes precedence.",
                stacklevel=2,
            )
        pairs = [(p, g) for p, g in params_grads if g is not None]
        chosen = [(p, g) for p, g in pairs if self.needs_clip(p)]
        if not chosen:
            return pairs
        with name_scope("gradient_clip"):
            clipped = self._clip(chosen)
        by_name = {p.name: g for p, g in clipped}
        _correct_role_vars(clipped)
        return [(p, by_name.get(p.name, g)) for p, g in pairs]

    def needs_clip(self, param: Any) -> bool:
        """Return whether the gradient of a parameter is to be clipped."""
        if self._need_clip_func is not None:
            return bool(self._need_clip_func(param))
        return getattr(param, "need_clip", True) is not False

    def _clip(self, pairs: Pairs) -> Pairs:
        """Append the ops for these pairs, all of which are to be clipped."""
        result = []
        for param, grad in pairs:
            with param.block.program.optimized_guard([param, grad]):
                result.append((param, self._clip_one(grad)))
        return result

    def _clip_one(self, grad: Variable) -> Variable:
        raise NotImplementedError(f"{type(self).__name__} does not define how to clip.")


class GradientClipByValue(GradientClipBase):
    """Clips every element to [min, max]; min is -max by default."""

    def __init__(
        self, max: float, min: float | None = None, need_clip: Callable[[Any], bool] | None = None
    ) -> None:
        super().__init__(need_clip)
        if min is None and not max > 0.0:
            raise ValueError(f"max of GradientClipByValue must be positive without min, not {max}.")
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def __str__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min:f}, max={self.max:f}"

    def _clip_one(self, grad: Variable) -> Variable:
        return layers.clip(x=grad, min=self.min, max=self.max)


class GradientClipByNorm(GradientClipBase):
    """Scales each gradient so that its own norm is at most `clip_norm`."""

    def __init__(self, clip_norm: float, need_clip: Callable[[Any], bool] | None = None) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)

    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"

    def _clip_one(self, grad: Variable) -> Variable:
        return layers.clip_by_norm(x=grad, max_norm=self.clip_norm)


class GradientClipByGlobalNorm(GradientClipBase):
    """Scales all gradients by one factor so that their global norm is at most `clip_norm`."""

    epsilon = 0.0
    """Added to the norm that is divided by."""

    def __init__(
        self,
        clip_norm: float,
        group_name: str = "default_group",
        need_clip: Callable[[Any], bool] | None = None,
    ) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)
        self.group_name = group_name

    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"

    def _clip(self, pairs: Pairs) -> Pairs:
        param, grad = pairs[-1]
        with param.block.program.optimized_guard([param, grad]):
            factor = self._append_factor(pairs)
        result = []
        for param, grad in pairs:
            with param.block.program.optimized_guard([param, grad]):
                result.append((param, layers.elementwise_mul(x=grad, y=factor)))
        return result

    def _append_factor(self, pairs: Pairs) -> Variable:
        """Append the ops that compute the factor from all gradients."""
        squares = []
        rows = selected_rows(pairs[0][0].block)
        for param, grad in pairs:
            with param.block.program.optimized_guard([param, grad]):
                if grad.name in rows:
                    merged = layers.merge_selected_rows(grad)
                    grad = layers.get_tensor_from_selected_rows(merged)
                squares.append(layers.reduce_sum(input=layers.square(grad)))
        norm = layers.sqrt(x=layers.sums(squares))
        limit = layers.fill_constant(shape=[1], dtype=norm.dtype, value=self.clip_norm)
        return layers.elementwise_div(x=limit, y=layers.elementwise_max(x=limit, y=norm))


class GradientClipByTorchNorm(GradientClipByGlobalNorm):
    """Clips by the global norm, with the same factor as PyTorch's `clip_grad_norm_`."""

    epsilon = CLIP_EPSILON

    def _append_factor(self, pairs: Pairs) -> Variable:
        helper = LayerHelper("clip_factor")
        grads = [grad for _, grad in pairs]
        factor = helper.create_variable_for_type_inference(dtype=grads[0].dtype, stop_gradient=True)
        helper.append_op("clip_factor", {"X": grads}, {"Out": factor}, {"max_norm": self.clip_norm})
        return factor


class ClipGradByValue(GradientClipByValue):
    """The 2.x name of `GradientClipByValue`."""

    def __init__(self, max: float, min: float | None = None) -> None:
        super().__init__(max, min)


class ClipGradByNorm(GradientClipByNorm):
    """The 2.x name of `GradientClipByNorm`."""

    def __init__(self, clip_norm: float) -> None:
        super().__init__(clip_norm)


class ClipGradByGlobalNorm(GradientClipByGlobalNorm):
    """The 2.x name of `GradientClipByGlobalNorm`.

    `auto_skip_clip` is for hybrid parallel eager training and has no effect.
    """

    def __init__(
        self, clip_norm: float, group_name: str = "default_group", auto_skip_clip: bool = False
    ) -> None:
        super().__init__(clip_norm, group_name)
        self.auto_skip_clip = auto_skip_clip


ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm


def set_gradient_clip(
    clip: GradientClipBase,
    param_list: Sequence[Any] | None = None,
    program: Program | None = None,
) -> None:
    """Clip the gradients of parameters (all of the program by default); call it before minimize.

    Prefer an optimizer's `grad_clip`, which takes precedence.
    """
    if not isinstance(clip, GradientClipBase):
        raise TypeError(
            f"clip of set_gradient_clip must be a gradient clip, not {type(clip).__name__}."
        )
    block = (default_main_program() if program is None else program).global_block()
    if any("optimizer" in op.all_attrs().get("op_namescope", "") for op in block.ops):
        warnings.warn(
            "set_gradient_clip has no effect after minimize: call it before.", stacklevel=2
        )
    chosen = block.all_parameters() if param_list is None else param_list
    params: list[Any] = [block.var(p) if isinstance(p, str) else p for p in chosen]
    for param in params:
        if not isinstance(param, Parameter):
            raise TypeError(
                "param_list of set_gradient_clip must hold Parameters or their names, "
                f"not {type(param).__name__}."
            )
    for param in params:
        param.gradient_clip_attr = copy.deepcopy(clip)


def append_gradient_clip_ops(params_grads: Sequence[tuple[Any, Any]]) -> Pairs:
    """Clip gradients as set by `set_gradient_clip` or ParamAttr.

    Parameters with equal clips by global norm share one norm per `group_name`.
    """
    pairs = [(p, g) for p, g in params_grads if g is not None]
    groups: dict[Any, tuple[GradientClipBase, Pairs]] = {}
    for param, grad in pairs:
        clip = getattr(param, "gradient_clip_attr", None)
        if clip is None:
            continue
        if not isinstance(clip, GradientClipBase):
            raise TypeError(
                f"the gradient clip of parameter {param.name!r} must be a gradient clip, "
                f"not {type(clip).__name__}."
            )
        key = getattr(clip, "group_name", param.name)
        first, members = groups.setdefault(key, (clip, []))
        if getattr(first, "clip_norm", None) != getattr(clip, "clip_norm", None):
            raise ValueError(
                f"the parameters of clip group {key!r} must have one clip_norm, "
                f"not {first.clip_norm} and {clip.clip_norm}."  # type: ignore[attr-defined]
            )
        members.append((param, grad))
    if not groups:
        return list(params_grads)
    clipped: dict[str, Any] = {}
    with name_scope("gradient_clip_@CLIP"):
        for clip, members in groups.values():
            clipped.update({p.name: g for p, g in clip._clip(members)})
    result = [(p, clipped.get(p.name, g)) for p, g in pairs]
    _correct_role_vars([(p, g) for p, g in result if p.name in clipped])
    return result


def _correct_role_vars(pairs: Pairs) -> None:
    """Set the clipped gradient as the parameter's gradient in the clip ops' role variables."""
    new = {p.name: g.name for p, g in pairs}
    for op in pairs[0][0].block.program.global_block().ops if pairs else ():
        role = op.attrs.get("op_role_var")
        if role and role[0] in new and "gradient_clip" in op.attrs.get("op_namescope", ""):
            op.attrs["op_role_var"] = [role[0], new[role[0]]]


export_defined(globals(), without="ClipByGlobalNorm ClipByNorm ClipByValue GradientClipByTorchNorm")
