"""Layers of Fluid's `contrib`: not part of `fluid.layers`."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_dtype, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import HALF_TOO, INTS
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.building.spatial_variants import of_op
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.nn import table_lookup

__all__ = [
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "multiclass_nms2",
    "partial_concat",
    "partial_sum",
    "sparse_embedding",
]


@op_layer("x y", output="Out IntermediateOut")
def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: list[str] | str,
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """Compute outer(inner(x, y)) or outer(x, inner(y)) of a sum or product and an activation.

    Args:
        x: the left operand.
        y: the right operand, which may have fewer dimensions.
        functor_list: the outer and the inner function, as a list or with a comma between them:
            elementwise_add or elementwise_mul, and scale, relu, tanh, sigmoid or gelu.
        axis: the dimension of x at which y begins; -1 aligns it with the last ones.
        scale: the factor of the function scale.
        save_intermediate_out: accepted; the inner result is always kept.
    """
    functors = functor_list.split(",") if isinstance(functor_list, str) else functor_list
    if not isinstance(functors, list) or len(functors) != 2:
        raise ValueError(
            f"functor_list of fused_elemwise_activation must be two names, not {functor_list!r}."
        )
    return changed(functor_list=functors)


@op_layer("BBoxes=bboxes scores", output="Out Index:int32", returns="Out Index?return_index")
def multiclass_nms2(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """Apply non-maximum suppression per class, as `multiclass_nms` does.

    With `return_index`, also return the index of each remaining box in the batch.
    """


def fused_embedding_seq_pool(
    input: Variable,
    size: list[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up the rows of each sequence of ids in a table and sum them.

    Args:
        input: sequences of ids, shape [N, 1].
        size: the number of ids and the width of a row.
        is_sparse: whether the table's gradient holds only the rows in use.
        padding_idx: an id whose row is zeros; negative indices count from the end.
        combiner: must be "sum".
    """
    op = "fused_embedding_seq_pool"
    helper = LayerHelper(op, param_attr=param_attr)
    attrs = {"is_sparse": is_sparse, "combiner": combiner}
    return table_lookup(helper, op, input, size, padding_idx, dtype, **attrs)


def sparse_embedding(
    input: Variable,
    size: list[int],
    padding_idx: int | None = None,
    is_test: bool = False,
    entry: Any = None,
    table_class: str = "CommonSparseTable",
    param_attr: Any = None,
    dtype: Any = "float32",
    slot: Any = None,
) -> Variable:
    """Look up rows of a table on parameter servers, which grows as ids are used.

    Args:
        input: int64 ids of any value and shape; the row replaces a last dimension of 1.
        size: the number of ids, which is not a limit, and the width of a row.
        padding_idx: an id that reads as zeros and is not trained.
        is_test: accepted; ids without a row return initial values, and only training creates
            rows.
        entry: which ids get rows: CountFilterEntry or ProbabilityEntry.
        table_class: accepted; there is one kind of table.
        dtype: the element type, float32 or float64.
        slot: accepted.
    """
    helper = LayerHelper("sparse_embedding", param_attr=param_attr)
    check_variable_and_dtype(input, "input", ["int64"], "paddle.static.nn.sparse_embedding")
    check_dtype(dtype, "dtype", ["float32", "float64"], "paddle.static.nn.sparse_embedding")
    words = "none"
    if entry is not None:
        if not hasattr(entry, "to_attr"):
            raise ValueError(
                "entry must be a paddle.distributed.ProbabilityEntry or "
                f"paddle.distributed.CountFilterEntry, not {type(entry).__name__}."
            )
        words = entry.to_attr()
    op = "lookup_table" if input.shape[-1] == 1 else "lookup_table_v2"
    remote = dict.fromkeys(("is_sparse", "is_distributed", "remote_prefetch"), True)
    return table_lookup(helper, op, input, size, padding_idx, dtype, **remote, entry=words)


def _columns(op: str, input: list[Variable], start_index: int = 0, length: int = -1) -> Variable:
    helper = LayerHelper(op)
    inputs = list(input) if isinstance(input, list | tuple) else [input]
    for i, value in enumerate(inputs):
        check_variable_and_dtype(value, f"input[{i}]", (*HALF_TOO, *INTS), op)
    attrs = {"start_index": start_index, "length": length}
    return helper.output_of(op, {"X": inputs}, attrs, dtype=inputs[0].dtype)


_DOC = "Return {} the same columns of several matrices; a length of -1 means to the end."
partial_concat = of_op(_columns, "partial_concat", _DOC.format("the concatenation of"))
partial_sum = of_op(_columns, "partial_sum", _DOC.format("the sum of"))
