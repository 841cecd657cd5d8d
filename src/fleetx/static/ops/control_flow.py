"""Ops that run blocks, and those around them: branches, loops, splitting a batch in two, printing.

A body runs through `ctx.run_block` with the values of the outer variables it reads; what it writes
to outer variables comes back as the op's outputs. The slot `Out` is an input too: an output that
the body did not write keeps its value.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from fleetx.static.graph.dtypes import VarType, dtype_name
from fleetx.static.graph.op_registry import Attr, Long, detached_op, effect_op, no_infer, op
from fleetx.static.shapes.infer_rules import always, rows_like
from fleetx.static.shapes.lod import LoD, Lods, WithLod, as_tensor, optional_lod, runs

Names = dict[str, dict[str, list[str]]]


def _visible(names: Names, rows: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the values of outer variables by name; those that have none yet are left out."""
    return {
        name: value
        for slot, row in rows.items()
        for name, value in zip(names["inputs"].get(slot, []), row, strict=True)
        if value is not None
    }


@op(
    "while",
    inputs="X*? Condition! Out*?",
    outputs="Out*? StepScopes?",
    attrs={
        "sub_block": Attr("BLOCK", None),
        "is_test": False,
        "skip_eager_deletion_vars": Attr("STRINGS", []),
    },
    infer=no_infer,
    lod="none",
)
def while_op(
    xs: list[Any], condition: Any, olds: list[Any], *, sub_block: Any, ctx: Any, names: Names
) -> Any:
    """Run the block as long as the condition variable, which the block updates, is true."""
    values = _visible(names, {"X": xs, "Condition": [condition], "Out": olds})
    name = names["inputs"]["Condition"][0]
    outs = names["outputs"].get("Out", [])
    while bool(values[name]):
        written = ctx.run_block(sub_block, values)
        values.update((n, written[n]) for n in outs if n in written)
        if name not in written:
            raise RuntimeError(
                f"the body of a while loop does not write its condition {name!r}: it never ends."
            )
    return [values.get(n) for n in outs], None


_CONDITIONAL: dict[str, Any] = {
    "inputs": "Cond*?! Input*? Out*?",
    "outputs": "Out*? Scope?",
    "attrs": {
        "sub_block": Attr("BLOCK", None),
        "is_scalar_condition": False,
        "skip_eager_deletion_vars": Attr("STRINGS", []),
    },
    "infer": no_infer,
    "lod": "none",
}


@op("conditional_block_infer", grad=None, **_CONDITIONAL)
@op("conditional_block", **_CONDITIONAL)
def conditional_block(
    conds: list[Any],
    inputs: list[Any],
    olds: list[Any],
    *,
    sub_block: Any,
    is_scalar_condition: bool,
    ctx: Any,
    names: Names,
) -> Any:
    """Run the block if the condition is true; a tensor condition is true if it is not empty."""
    values = _visible(names, {"Cond": conds, "Input": inputs, "Out": olds})
    runs_now = bool(conds[0]) if is_scalar_condition else all(c.numel() for c in conds)
    if runs_now:
        values.update(ctx.run_block(sub_block, values))
    return [values.get(n) for n in names["outputs"].get("Out", [])], None


@op(
    "recurrent",
    inputs="inputs*? initial_states*? parameters*?",
    outputs="outputs* step_scopes?",
    attrs={
        "has_states": False,
        "sub_block": Attr("BLOCK", None),
        "is_train": True,
        "skip_eager_deletion_vars": Attr("STRINGS", []),
    },
    infer=no_infer,
    lod="none",
)
def recurrent(
    inputs: list[Any],
    initial_states: list[Any],
    parameters: list[Any],
    *,
    sub_block: Any,
    ex_states: list[str] = [],
    states: list[str] = [],
    reverse: bool = False,
    ctx: Any,
    names: Names,
) -> Any:
    """Run the block once per step along the first dimension; states pass from step to step."""
    fixed = _visible(names, {"parameters": parameters})
    carried = dict(zip(ex_states, initial_states, strict=True))
    in_names = names["inputs"].get("inputs", [])
    out_names = names["outputs"]["outputs"]
    steps = range(len(inputs[0]))
    collected: dict[str, list[Any]] = {n: [] for n in out_names}
    for t in reversed(steps) if reverse else steps:
        now = {n: x[t] for n, x in zip(in_names, inputs, strict=True)}
        written = ctx.run_block(sub_block, {**fixed, **carried, **now})
        carried = {old: written[new] for old, new in zip(ex_states, states, strict=True)}
        for n in out_names:
            collected[n].append(written[n])
    return [torch.stack(v[::-1] if reverse else v) for v in collected.values()], None


@op("rnn_memory_helper", attrs={"dtype": 5})
def rnn_memory_helper(x: Any) -> Any:
    """Return a state under the name that the next step reads."""
    return x.view_as(x)


@op("select_input", inputs="X*? Mask!", infer=rows_like("X", same_number=True), lod="none")
def select_input(xs: list[Any], mask: Any, *, lod: Lods) -> Any:
    """Return the input whose number is in Mask; the others need no value."""
    number = int(mask)
    return WithLod(xs[number], lod["X"][number])


@op("select_output", inputs="X Mask!", outputs="Out*", infer=no_infer)
def select_output(x: Any, mask: Any, *, names: Names) -> Any:
    """Pass X on to the output whose number is in Mask."""
    number = int(mask)
    return [x if i == number else None for i in range(len(names["outputs"]["Out"]))]


def _units(x: Any, levels: LoD | None) -> np.ndarray[Any, Any]:
    """Return the row offsets of what a mask decides on: sequences, or single rows."""
    return np.asarray(levels[0]) if levels else np.arange(len(x) + 1)


def _take(x: Any, levels: LoD | None, chosen: np.ndarray[Any, Any]) -> WithLod:
    offsets = _units(x, levels)
    sizes = np.diff(offsets)[chosen]
    rows = x[runs(offsets[:-1][chosen], sizes, x.device)]
    return WithLod(rows, [[0, *np.cumsum(sizes).tolist()]] if levels else None)


@op(
    "split_lod_tensor",
    inputs="X Mask!",
    outputs="OutTrue OutFalse",
    attrs={"level": 0},
    infer=rows_like("X", "OutTrue", "OutFalse"),
    lod="none",
)
def split_lod_tensor(x: Any, mask: Any, *, lod: Lods) -> Any:
    """Return the rows (or sequences) where the mask is true, and those where it is false."""
    chosen = mask.reshape(-1).cpu().numpy().astype(bool)
    levels = optional_lod(lod, "X")
    return _take(x, levels, np.flatnonzero(chosen)), _take(x, levels, np.flatnonzero(~chosen))


_MERGE: dict[str, Any] = {
    "inputs": "X! Mask! InTrue InFalse",
    "attrs": {"level": 0},
    "infer": rows_like("InTrue"),
    "lod": "none",
}


@op("merge_lod_tensor_infer", grad=None, **_MERGE)
@op("merge_lod_tensor", **_MERGE)
def merge_lod_tensor(x: Any, mask: Any, in_true: Any, in_false: Any, *, lod: Lods) -> Any:
    """Put the two parts of a batch together again, in the order of the mask."""
    chosen = mask.reshape(-1).cpu().numpy().astype(bool)
    true_lod, false_lod = optional_lod(lod, "InTrue"), optional_lod(lod, "InFalse")
    both = torch.cat([in_true, in_false])
    has_lod = bool(true_lod or false_lod)
    offsets = np.concatenate(
        [_units(in_true, true_lod)[:-1], _units(in_false, false_lod) + len(in_true)]
    )
    # The n-th true place takes the n-th unit of InTrue, the n-th false place the n-th of InFalse.
    units = np.where(chosen, np.cumsum(chosen) - 1, chosen.sum() + np.cumsum(~chosen) - 1)
    if not has_lod:
        return WithLod(both[as_tensor(units, both.device)], None)
    return _take(both, [offsets.tolist()], units)


@detached_op("is_empty", infer=always((1,), VarType.BOOL))
def is_empty(x: Any) -> Any:
    """Return whether a value has no elements."""
    return torch.tensor([x.numel() == 0], device=x.device)


@effect_op("assert", inputs="Cond Data*?", outputs="")
def assert_op(cond: Any, data: list[Any], *, summarize: Long = -1, names: Names) -> Any:
    """Stop the run, showing the data, unless the condition is true."""
    if not bool(cond.all()):
        shown = [
            f"{name} = {_some(value, summarize)}"
            for name, value in zip(names["inputs"].get("Data", []), data, strict=True)
        ]
        condition = names["inputs"]["Cond"][0]
        raise ValueError(f"Assert failed: {condition!r} is not true. {'; '.join(shown)}".rstrip())
    return ()


def _some(value: Any, count: int) -> str:
    flat = value.detach().reshape(-1).tolist()
    return str(flat if count < 0 else flat[:count])


@op(
    "print",
    inputs="In",
    attrs={"is_forward": True},
    side_effect=True,
    infer=rows_like("In", same_number=True),
)
def print_op(
    x: Any,
    *,
    first_n: int = -1,
    message: str = "",
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "BOTH",
    lod: Lods,
    names: Names,
) -> Any:
    """Print a value, and in the backward pass its gradient, then pass it on."""
    source, result = names["inputs"]["In"][0], names["outputs"]["Out"][0]
    levels = optional_lod(lod, "In")
    # `names` belongs to this op for as long as its program runs, so it can hold the count.
    printed: dict[str, Any] = names.setdefault("printed", {})

    def show(value: torch.Tensor, what: str) -> None:
        printed[what] = printed.get(what, 0) + 1
        if 0 < first_n < printed[what]:
            return
        lines = [message] if message else []
        lines += [f"Variable: {what}"] if print_tensor_name else []
        lines += [f"  - lod: {levels or '{}'}"] if print_tensor_lod else []
        lines += [f"  - shape: {list(value.shape)}"] if print_tensor_shape else []
        lines += [f"  - dtype: {dtype_name(value.dtype)}"] if print_tensor_type else []
        lines += [f"  - data: {_some(value, summarize)}"]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    out = x.view_as(x)
    if print_phase in ("FORWARD", "BOTH"):
        show(x, source)
    if print_phase in ("BACKWARD", "BOTH") and out.requires_grad:
        out.register_hook(lambda grad: show(grad, f"{result}@GRAD"))
    return out
