"""Layers of Fluid's `contrib`: not part of `fluid.layers`."""

from __future__ import annotations

from typing import Any

from fleetx.static.checks import check_variable_and_dtype
from fleetx.static.layer_helper import LayerHelper
from fleetx.static.variable import Variable

__all__ = ["fused_embedding_seq_pool", "partial_concat", "partial_sum"]

_NUMBERS = ["float16", "float32", "float64", "int32", "int64"]


def fused_embedding_seq_pool(
    input: Variable,
    size: list[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up the rows of each sequence of ids in a table and add them up.

    Args:
        input: sequences of ids, shape [N, 1].
        size: the number of ids and the width of a row.
        is_sparse: whether the table's gradient holds only the rows that were used.
        padding_idx: an id that counts as zeros; a negative one counts from the end.
        combiner: must be "sum".
        param_attr: the table's attributes.
        dtype: the element type.
    """
    helper = LayerHelper("fused_embedding_seq_pool", param_attr=param_attr)
    table = helper.create_parameter(helper.param_attr, size, dtype)
    out = helper.create_variable_for_type_inference(dtype)
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += size[0]
    helper.append_op(
        type="fused_embedding_seq_pool",
        inputs={"Ids": [input], "W": [table]},
        outputs={"Out": [out]},
        attrs={"is_sparse": is_sparse, "combiner": combiner, "padding_idx": padding_idx},
    )
    return out


def partial_concat(input: list[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Return the same columns of several matrices, side by side; a length of -1 is to the end."""
    return _columns("partial_concat", input, start_index, length)


def partial_sum(input: list[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Return the sum of the same columns of several matrices; a length of -1 is to the end."""
    return _columns("partial_sum", input, start_index, length)


def _columns(op_type: str, input: list[Variable], start_index: int, length: int) -> Variable:
    helper = LayerHelper(op_type)
    inputs = list(input) if isinstance(input, list | tuple) else [input]
    for i, value in enumerate(inputs):
        check_variable_and_dtype(value, f"input[{i}]", _NUMBERS, op_type)
    out = helper.create_variable_for_type_inference(inputs[0].dtype)
    helper.append_op(
        type=op_type,
        inputs={"X": inputs},
        outputs={"Out": [out]},
        attrs={"start_index": start_index, "length": length},
    )
    return out
