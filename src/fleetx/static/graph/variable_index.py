"""`variable[...]`: indices and slices as `slice`, `strided_slice`, `reverse` and `gather` ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetx.static import unique_name
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable

# Greater than any dimension: "up to the end".
_END = 10000000


@dataclass
class _Plan:
    """The parts of an index, per dimension."""

    axes: list[int] = field(default_factory=list)
    starts: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)  # axes that an int picked one element of
    backwards: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)  # positions of None in the result

    def add(self, axis: int, start: Any, end: Any, step: Any = 1) -> None:
        """Take start:end:step of an axis."""
        self.axes.append(axis)
        self.starts.append(start)
        self.ends.append(end)
        self.steps.append(step)


def append(block: Block, type: str, inputs: Any, out: Variable, attrs: Any = None) -> Variable:
    """Append an op with one result, and return that."""
    block.append_op(type=type, inputs=inputs, outputs={"Out": [out]}, attrs=attrs)
    return out


def _constant(block: Block, value: int) -> Variable:
    out = block.create_var(dtype="int32")
    attrs = {"shape": [1], "dtype": int(VarType.INT32), "value": float(value), "force_cpu": True}
    block.append_op(type="fill_constant", outputs={"Out": [out]}, attrs=attrs, stop_gradient=True)
    out.stop_gradient = True
    return out


def _next_after(block: Block, index: Variable) -> Variable:
    one = _constant(block, 1)
    out = block.create_var(dtype=index.dtype)
    if index.dtype != VarType.INT32:
        wide = block.create_var(dtype=index.dtype)
        attrs = {"in_dtype": int(VarType.INT32), "out_dtype": int(index.dtype)}
        one = append(block, "cast", {"X": one}, wide, attrs)
    return append(block, "elementwise_add", {"X": index, "Y": one}, out, {"axis": -1})


def _plan_slice(plan: _Plan, axis: int, item: slice) -> None:
    start, end, step = item.start, item.stop, item.step
    if start is None and end is None and step is None:
        return
    step = 1 if step is None else step
    if start is None and end is None and not isinstance(step, Variable) and step == -1:
        plan.backwards.append(axis)
        return
    downwards = not isinstance(step, Variable) and step < 0
    if start is None:
        start = -1 if downwards else 0
    if end is None:
        end = -_END if downwards else _END
    plan.add(axis, start, end, step)


def _plan_int(plan: _Plan, var: Variable, axis: int, index: int) -> None:
    size = var.shape[axis]
    if size >= 0 and not -size <= index < size:
        raise IndexError(
            f"index {index} is outside dimension {axis} of {var.name!r}, of shape {var.shape}."
        )
    plan.drop.append(axis)
    plan.add(axis, index, _END if index == -1 else index + 1)


def _expand_ellipsis(var: Variable, items: list[Any]) -> list[Any]:
    spots = [i for i, item in enumerate(items) if item is Ellipsis]
    if not spots:
        return items
    used = sum(item is not None and item is not Ellipsis for item in items)
    fill = [slice(None)] * (len(var.shape) - used)
    return items[: spots[0]] + fill + items[spots[0] + 1 :]


def _make_plan(var: Variable, block: Block, items: list[Any]) -> _Plan:
    plan, axis, place = _Plan(), 0, 0
    for item in _expand_ellipsis(var, items):
        if item is None:
            plan.new.append(place)
            place += 1
            continue
        if axis >= len(var.shape):
            raise IndexError(f"too many indices for {var.name!r}, whose shape is {var.shape}.")
        if isinstance(item, slice):
            _plan_slice(plan, axis, item)
            place += 1
        elif isinstance(item, Variable):
            plan.drop.append(axis)
            plan.add(axis, item, _next_after(block, item))
        elif isinstance(item, int | np.integer) and not isinstance(item, bool):
            _plan_int(plan, var, axis, int(item))
        else:
            raise TypeError(
                f"{var.name!r} takes ints, slices, Variables, None and ... as index, not {item!r}."
            )
        axis += 1
    return plan


def _sliced(var: Variable, block: Block, plan: _Plan) -> Variable:
    strided = any(isinstance(s, Variable) or s != 1 for s in plan.steps)
    inputs: dict[str, Any] = {"Input": [var]}
    attrs: dict[str, Any] = {"axes": plan.axes, "decrease_axis": plan.drop}
    flags = [1] * len(plan.axes)
    for word, values in (("starts", plan.starts), ("ends", plan.ends), ("strides", plan.steps)):
        if word == "strides" and not strided:
            continue
        attrs[word] = [-1 if isinstance(v, Variable) else v for v in values]
        if any(isinstance(v, Variable) for v in values):
            for i, v in enumerate(values):
                if isinstance(v, Variable):
                    v.stop_gradient = True
                    flags[i] = -1
            inputs[f"{word.capitalize()}TensorList"] = [
                v if isinstance(v, Variable) else _constant(block, v) for v in values
            ]
    attrs["infer_flags"] = flags
    kind = "strided_slice" if strided else "slice"
    out = block.create_var(name=unique_name.generate(f"{var.name}_{kind}"), dtype=var.dtype)
    return append(block, kind, inputs, out, attrs)


def _by_tensor(var: Variable, block: Block, index: Variable) -> Variable:
    """Return the rows selected by a vector of indices or by a mask."""
    out = block.create_var(name=unique_name.generate(f"{var.name}_gather"), dtype=var.dtype)
    if index.dtype != VarType.BOOL:
        return append(block, "gather", {"X": var, "Index": index}, out, {})
    found = block.create_var(dtype=VarType.INT64)
    append(block, "where_index", {"Condition": index}, found, {})
    return append(block, "gather_nd", {"X": var, "Index": found}, out, {})


def get_item(self: Variable, item: Any) -> Variable:
    """Return the part of the variable selected by an index."""
    block = self.block.program.current_block()
    if isinstance(item, Variable) and (
        item.dtype == VarType.BOOL or (len(item.shape) == 1 and item.shape[0] != 1)
    ):
        return _by_tensor(self, block, item)
    plan = _make_plan(self, block, list(item) if isinstance(item, tuple) else [item])
    out = self
    if plan.axes:
        out = _sliced(self, block, plan)
    if plan.backwards:
        gone = [sum(d < axis for d in plan.drop) for axis in plan.backwards]
        axes = [axis - less for axis, less in zip(plan.backwards, gone, strict=True)]
        name = unique_name.generate(f"{self.name}_slice_reverse")
        flipped = block.create_var(name=name, dtype=self.dtype)
        out = append(block, "reverse", {"X": out}, flipped, {"axis": axes})
    if plan.new:
        name = unique_name.generate(f"{self.name}_unsqueeze")
        wider = block.create_var(name=name, dtype=self.dtype)
        out = append(block, "unsqueeze2", {"X": out}, wider, {"axes": plan.new})
    return out
