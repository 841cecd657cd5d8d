"""Ops that update parameters, by the rules of `fleetx.kernels.updates`.

Every op writes into the tensors it is given: `ParamOut` is the same variable as `Param`.
"""

from __future__ import annotations

from typing import Any

from fleetx.kernels.updates import RULES
from fleetx.static.graph.op_registry import Attr, get_op, op
from fleetx.static.shapes.infer_shape import ShapeError, describe_inputs


def infer_update(op: Any, block: Any) -> None:
    """Check that gradient and parameter have one shape; give outputs the shape of their inputs."""
    param, grad = (block.find_var(n) for n in (op.input("Param") + op.input("Grad"))[:2])
    known = param is not None and grad is not None and param.shape and grad.shape
    if known and -1 not in grad.shape and param.shape != grad.shape:
        raise ShapeError(f"op {op.type!r} does not accept {describe_inputs(op, block)}.")
    infer_inplace(op, block)


def infer_inplace(op: Any, block: Any) -> None:
    """Give outputs under a name of their own the shape of the input they are updated from."""
    for out_slot, in_slot in get_op(op.type).inplace.items():
        for new, old in zip(op.output(out_slot), op.input(in_slot), strict=False):
            if new != old:
                source, target = block.find_var(old), block.find_var(new)
                if source is not None and target is not None:
                    target.set_inferred(source.shape, source.dtype)


def _define_updates() -> None:
    """Define an op for every rule."""
    # Outputs that a program may leave out.
    optional = {"rmsprop": ("MeanGradOut",), "lamb": ("Beta1PowOut", "Beta2PowOut")}
    # Attributes of Paddle's ops that no rule reads.
    unread: dict[str, dict[str, Any]] = {
        "adam": {"min_row_size_to_use_multithread": Attr("LONG", 1000)},
        "adamw": {
            "min_row_size_to_use_multithread": Attr("LONG", 1000),
            "multi_precision": False,
            "use_global_beta_pow": False,
        },
    }
    for kind, rule in RULES.items():
        marks = dict.fromkeys(optional.get(kind, ()), "?")
        outputs = [f"{o}{marks.get(o, '')}={i}" for o, i in rule.changes.items()]
        op(
            kind,
            inputs=rule.takes,
            outputs=" ".join(outputs),
            attrs={**rule.settings, **unread.get(kind, {})},
            attrs_only=True,
            grad=None,
            infer=infer_update,
            fused=rule.fused,
            random=rule.random,
        )(rule.function)


_define_updates()
