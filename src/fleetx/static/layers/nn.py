"""The basic layers of neural networks: fully connected, embedding, dropout, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import (
    check_choice,
    check_dtype,
    check_type,
    check_variable_and_dtype,
)
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import HALF_TOO, WIDE
from fleetx.static.building.op_layer import op_layer
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.errors import ShapeError
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.tensor import cast


def fc(
    input: Any,
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Fully connected layer: multiply inputs by weights, sum, add a bias, apply an activation.

    Args:
        input: a Variable, or several with separate weights.
        size: the number of outputs.
        num_flatten_dims: the leading dimensions to keep; the others are flattened.
        param_attr: the weights' attributes, one for all inputs or one for each.
    """
    helper = LayerHelper(
        "fc", input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    check_type(input, "input", (list, tuple, Variable), "fc")
    if isinstance(input, list | tuple):
        for i, item in enumerate(input):
            check_type(item, f"input[{i}]", Variable, "fc")
    dtype = helper.input_dtype()
    check_dtype(dtype, "input", HALF_TOO, "fc")
    products = []
    for var, attr in helper.iter_inputs_and_params():
        if num_flatten_dims == -1:
            num_flatten_dims = len(var.shape) - 1
        shape = [math.prod(var.shape[num_flatten_dims:]), size]
        weight = helper.create_parameter(attr, shape, dtype)
        attrs = {"x_num_col_dims": num_flatten_dims, "y_num_col_dims": 1}
        products.append(helper.output_of("mul", {"X": var, "Y": weight}, attrs, dtype=dtype))
    total = products[0]
    if len(products) > 1:
        total = helper.output_of("sum", {"X": products}, dtype=dtype)
    return helper.append_activation(helper.append_bias_op(total, dim_start=num_flatten_dims))


def table_lookup(
    helper: LayerHelper,
    op: str,
    ids: Variable,
    size: Sequence[int],
    padding_idx: int | None,
    dtype: Any,
    **attrs: Any,
) -> Variable:
    """Create the helper's table and append an op that looks up its rows."""
    table = helper.weight(size, dtype)
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += size[0]
    attrs["padding_idx"] = padding_idx
    return helper.output_of(op, {"Ids": ids, "W": table}, attrs, dtype=dtype)


def _embedding(
    op: str,
    input: Variable,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up rows of a learned table; they replace the last dimension of `input`, which is 1.

    Args:
        input: int64 ids of shape [..., 1].
        size: the table's shape, [rows, width].
        is_sparse: whether the gradient holds only the rows in use.
        is_distributed: whether the table is on parameter servers.
        padding_idx: an id whose row is zeros and is not trained.
        dtype: the table's element type.
    """
    layer = "fluid.embedding" if op == "lookup_table_v2" else "fluid.layers.embedding"
    check_variable_and_dtype(input, "input", ["int64"], layer)
    check_dtype(dtype, "dtype", HALF_TOO, layer)
    helper = LayerHelper("embedding", param_attr=param_attr)
    attrs = {"is_sparse": is_sparse, "is_distributed": is_distributed}
    attrs["remote_prefetch"] = is_sparse and not is_distributed
    return table_lookup(helper, op, input, size, padding_idx, dtype, **attrs)


embedding = with_first(_embedding, "embedding", "lookup_table")
embedding_v2 = with_first(
    _embedding,
    "embedding_v2",
    "lookup_table_v2",
    doc="Look up rows of a table, as `embedding`, but for ids of any shape (`fluid.embedding`).",
)


def _check_dropout(probability: Any, implementation: str) -> None:
    if not isinstance(probability, int | float) or not 0 <= probability <= 1:
        raise ShapeError(
            f"dropout_prob of dropout must be a number between 0.0 and 1.0, not {probability!r}."
        )
    choices = ("downgrade_in_infer", "upscale_in_train")
    check_choice(implementation, "dropout_implementation", choices, "dropout", ShapeError)


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Set elements to zero with probability `dropout_prob` in training.

    'downgrade_in_infer' multiplies by 1 - dropout_prob in inference; 'upscale_in_train' divides by
    it in training.
    """
    helper = LayerHelper("dropout", name=name)
    check_variable_and_dtype(x, "x", HALF_TOO, "dropout")
    _check_dropout(dropout_prob, dropout_implementation)
    if not seed and helper.main_program.random_seed != 0:
        seed = helper.main_program.random_seed
    attrs = {
        "dropout_prob": dropout_prob,
        "is_test": is_test,
        "fix_seed": seed is not None,
        "seed": seed or 0,
        "dropout_implementation": dropout_implementation,
    }
    out, _ = helper.outputs_of(
        "dropout", {"X": [x]}, attrs, Out=x.dtype, Mask="uint8", no_grad="Mask"
    )
    return out


@op_layer("X=input", input=HALF_TOO)
def softmax(
    input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1
) -> Variable:
    """Apply softmax along an axis."""


def log_softmax(
    input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return log(softmax(input)) along an axis, the last by default.

    With `dtype`, the input is converted first.
    """
    check_variable_and_dtype(input, "input", HALF_TOO, "log_softmax")
    helper = LayerHelper("log_softmax", name=name)
    x = input
    if dtype is not None:
        check_dtype(dtype, "dtype", HALF_TOO, "log_softmax")
        x = cast(input, dtype)
    attrs = {"axis": -1 if axis is None else axis, "use_cudnn": False}
    shares = helper.output_of("softmax", {"X": x}, attrs, dtype=x.dtype)
    return helper.output_of("log", {"X": shares}, dtype=x.dtype)


@op_layer("X Y", output="Out XNorm YNorm", X=("float32",), Y=("float32",))
def cos_sim(X: Variable, Y: Variable) -> Variable:
    """Return the cosine similarity of the rows of X with those of Y (or the only row of Y)."""


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """Return x W_i y for each of `size` learned matrices W_i."""
    attrs = {"param_attr": param_attr, "bias_attr": bias_attr, "act": act, "name": name}
    helper = LayerHelper("bilinear_tensor_product", x=x, **attrs)
    dtype = helper.input_dtype("x")
    check_dtype(dtype, "x", HALF_TOO, "bilinear_tensor_product")
    inputs = {"X": x, "Y": y, "Weight": helper.weight([size, x.shape[1], y.shape[1]], dtype)}
    inputs["Bias"] = helper.bias([1, size], dtype)
    out = helper.output_of("bilinear_tensor_product", inputs, dtype=dtype)
    return helper.append_activation(out)


@op_layer("x y", op="fsp", x=WIDE, y=WIDE)
def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Return the products of all channels of x with all channels of y, averaged over the image."""


def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Convert the first two columns, shows and clicks, to logarithms, or drop them."""
    helper = LayerHelper("cvm")
    out = helper.create_variable(dtype=input.dtype)
    check_variable_and_dtype(input, "input", HALF_TOO, "cvm")
    helper.append_op("cvm", {"X": [input], "CVM": [cvm]}, {"Y": [out]}, {"use_cvm": use_cvm})
    return out


def row_conv(
    input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None
) -> Variable:
    """Convolve each step of a sequence with the following steps, feature by feature."""
    helper = LayerHelper("row_conv", param_attr=param_attr, act=act)
    check_variable_and_dtype(input, "input", ["float32"], "row_conv")
    weight = helper.weight([future_context_size + 1, input.shape[-1]], input.dtype)
    out = helper.output_of("row_conv", {"X": [input], "Filter": [weight]}, dtype=input.dtype)
    return helper.append_activation(out)


export_defined(globals(), without="embedding_v2 table_lookup")
