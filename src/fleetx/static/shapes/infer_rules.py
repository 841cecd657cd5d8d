"""Shape rules without meta tensors: for frequent ops, and for ops whose shapes depend on values.

A rule is the `infer` argument of `op`: a function of (op, block) that sets shape and type of the
outputs, and the LoD level of sequences. Rules handle unknown dimensions (-1) exactly, as `reshape`
or the sum of a batch and a tensor of fixed size require.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from fleetx.static.graph.dtypes import VarType, convert_dtype
from fleetx.static.shapes.infer_shape import ShapeError, describe_inputs, infer_by_running

Rule = Callable[[Any, Any], None]
Shape = tuple[int, ...]


def input_var(op: Any, block: Any, slot: str, index: int = 0) -> Any:
    """Return a variable of an input slot; None if there is none or it has no shape yet."""
    names = op.input(slot)
    if len(names) <= index:
        return None
    var = block.find_var(names[index])
    return None if var is None or var.dtype is None or var._shape is None else var


def set_output(
    op: Any, block: Any, slot: str, shape: Sequence[int], dtype: Any, lod_level: int | None = None
) -> None:
    """Set shape and type of all variables of an output slot, and their LoD level if given."""
    for name in op.output(slot):
        var = block.find_var(name)
        if var is not None:
            var.set_inferred(tuple(int(d) for d in shape), convert_dtype(dtype))
            if lod_level is not None:
                var._lod_level = lod_level


def shapes(
    slots: str, compute: Callable[..., dict[str, tuple[Any, ...]]], rank: int | None = 0
) -> Rule:
    """Rule: `compute(op, *variables)` returns shape, type and LoD level by output slot.

    It is called with the first variable of each of the input slots, once all of them have a shape;
    without a level, that of the output is not changed. The first one needs `rank` dimensions; with
    None only the types of all must be known.
    """

    def rule(op: Any, block: Any) -> None:
        found = [block.var_recursive(op.input(slot)[0]) for slot in slots.split()]
        if any(var.dtype is None for var in found):
            return
        if rank is not None and any(var._shape is None for var in found):
            return
        if rank and found and len(found[0].shape) < rank:
            raise ShapeError(
                f"op {op.type!r} needs an input of at least {rank} dimensions, "
                f"but {found[0].name!r} has shape {found[0].shape}."
            )
        for slot, described in compute(op, *found).items():
            set_output(op, block, slot, *described)

    return rule


def known(*slots: str) -> Callable[[Callable[..., None]], Rule]:
    """Return a decorator for a rule of (op, block, the first variable of each input slot).

    The rule is applied only if all of these have a shape; outputs stay unknown until then.
    """

    def decorate(rule: Callable[..., None]) -> Rule:
        @functools.wraps(rule)
        def infer(op: Any, block: Any) -> None:
            found = [input_var(op, block, slot) for slot in slots]
            if all(var is not None for var in found):
                rule(op, block, *found)

        return infer

    return decorate


def refuse(op: Any, block: Any, reason: str) -> ShapeError:
    """Return the error for inputs that do not fit, naming op, variables and shapes."""
    return ShapeError(f"op {op.type!r} does not accept {describe_inputs(op, block)}: {reason}")


def checked(problem: Callable[[Any, Any], str | None], then: Rule | None = None) -> Rule:
    """Rule: reject the op if `problem(op, block)` returns one; otherwise apply another rule.

    Without another rule the op is run on meta tensors.
    """

    def rule(op: Any, block: Any) -> None:
        found = problem(op, block)
        if found:
            raise refuse(op, block, found)
        (then or infer_by_running)(op, block)

    return rule


def needs_rank(rank: int, slot: str = "X") -> Callable[[Any, Any], str | None]:
    """Return a check for `checked`: the input must have this number of dimensions."""

    def problem(op: Any, block: Any) -> str | None:
        var = input_var(op, block, slot)
        wrong = var is not None and len(var.shape) != rank
        return f"{slot} must have {rank} dimension{'s' * (rank > 1)}." if wrong else None

    return problem


def same_as(slot: str = "X", out: str = "Out", dtype: VarType | None = None) -> Rule:
    """Rule: the output has the shape and type of the input, or the type `dtype`."""

    def rule(op: Any, block: Any) -> None:
        var = input_var(op, block, slot)
        if var is not None:
            set_output(op, block, out, var.shape, var.dtype if dtype is None else dtype)

    return rule


def always(shape: Shape, dtype: VarType | None = None) -> Rule:
    """Rule: the output has a fixed shape, and a fixed type or that of X."""
    if dtype is None:
        return shapes("X", lambda op, x: {"Out": (shape, x.dtype)})
    return shapes("", lambda op: {"Out": (shape, dtype)})


def rows_of_any_number(slot: str) -> Rule:
    """Rule: the output has rows like the input's; their number is known only at run time."""
    return shapes(slot, lambda op, x: {"Out": ((-1, *x.shape[1:]), x.dtype)})


def rows_like(
    slot: str, *outs: str, level: Callable[[int], int] = lambda n: n, same_number: bool = False
) -> Rule:
    """Rule: outputs have the row shape of an input, and its number of rows only if requested;
    `level` maps LoD levels."""

    def compute(op: Any, x: Any) -> dict[str, tuple[Any, ...]]:
        shape = x.shape if same_number else (-1, *x.shape[1:])
        return dict.fromkeys(outs or ("Out",), (shape, x.dtype, level(x.lod_level)))

    return shapes(slot, compute)


def projected(rows: str, weight: str, axis: int, *outs: str, rank: int = 0) -> Rule:
    """Rule: outputs have the rows of an input, and as many columns as this axis of a weight."""
    return shapes(
        f"{rows} {weight}",
        lambda op, x, w: dict.fromkeys(outs, ((x.shape[0], w.shape[axis]), w.dtype, x.lod_level)),
        rank,
    )


def known_product(dims: Shape) -> int:
    """Return the product of the dimensions; -1 if one of them is unknown."""
    return -1 if any(d < 0 for d in dims) else math.prod(dims)


def broadcast_shape(x: Shape, y: Shape, axis: int = -1) -> Shape | None:
    """Return the shape of `x op y`, with y aligned at `axis`; None if they do not broadcast."""
    if len(x) < len(y):
        x, y = y, x
    start = len(x) - len(y) if axis == -1 else axis
    tail = len(x) - start - len(y)
    if tail < 0:  # trailing dimensions of size 1 are dropped
        if start < 0 or any(d != 1 for d in y[tail:]):
            return None
        y = y[:tail]
        tail = 0
    full = (1,) * start + y + (1,) * tail
    out = []
    for a, b in zip(x, full, strict=True):
        if a > 1 and b > 1 and a != b:
            return None
        out.append(max(a, b) if a > 1 or b > 1 or a == b else (-1 if -1 in (a, b) else 0))
    return tuple(out)


def broadcast(dtype: VarType | None = None) -> Rule:
    """Rule of two inputs X and Y with attribute `axis`."""

    @known("X", "Y")
    def rule(op: Any, block: Any, x: Any, y: Any) -> None:
        if x.shape == y.shape:
            shape: Shape | None = x.shape
        else:
            shape = broadcast_shape(x.shape, y.shape, op.attrs.get("axis", -1))
        if shape is None:
            axis = op.attrs.get("axis", -1)
            raise refuse(op, block, f"the shapes cannot be broadcast together (axis {axis}).")
        set_output(op, block, "Out", shape, x.dtype if dtype is None else dtype)

    return rule


def shape_from_attr(out: str = "Out") -> Rule:
    """Rule of ops that create a tensor: attribute `shape` or slot ShapeTensor; type `dtype`."""

    def rule(op: Any, block: Any) -> None:
        tensor = input_var(op, block, "ShapeTensor")
        if tensor is not None:
            shape: Sequence[int] = (-1,) * tensor.shape[0]
        elif op.input("ShapeTensorList") and not op.attrs.get("shape"):
            shape = (-1,) * len(op.input("ShapeTensorList"))
        else:
            shape = op.attrs["shape"]
        set_output(op, block, out, shape, op.attrs["dtype"])

    return rule


def by_running_unless(*slots: str, fallback: Rule) -> Rule:
    """Rule: run on meta tensors, unless a tensor in one of these slots gives the shape."""

    def rule(op: Any, block: Any) -> None:
        if any(op.input(slot) for slot in slots):
            fallback(op, block)
        else:
            infer_by_running(op, block)

    return rule
