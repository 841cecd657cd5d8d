"""The basic layers of neural networks: fully connected, embedding, dropout, softmax."""

from __future__ import annotations

import math
from typing import Any

from fleetx.static.building.argument_checks import check_dtype, check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.errors import ShapeError
from fleetx.static.graph.variable import Variable

__all__ = [
    "bilinear_tensor_product",
    "continuous_value_model",
    "cos_sim",
    "dropout",
    "embedding",
    "fc",
    "fsp_matrix",
    "log_softmax",
    "row_conv",
    "softmax",
]

_FLOATS = ["float16", "float32", "float64"]


def fc(
    input: Any,
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Multiply inputs by weights, add them up, add a bias, apply an activation.

    Args:
        input: a Variable, or several, each with weights of its own.
        size: the number of outputs.
        num_flatten_dims: how many leading dimensions of the input stay; the others become one.
        param_attr: the weights' attributes, one for all inputs or one for each.
        bias_attr: the bias's attributes; False for none.
        act: the name of an activation.
        name: the layer's name.
    """
    helper = LayerHelper(
        "fc", input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    check_type(input, "input", (list, tuple, Variable), "fc")
    if isinstance(input, list | tuple):
        for i, item in enumerate(input):
            check_type(item, f"input[{i}]", Variable, "fc")
    dtype = helper.input_dtype()
    check_dtype(dtype, "input", _FLOATS, "fc")
    products = []
    for var, attr in helper.iter_inputs_and_params():
        if num_flatten_dims == -1:
            num_flatten_dims = len(var.shape) - 1
        weight = helper.create_parameter(
            attr=attr, shape=[math.prod(var.shape[num_flatten_dims:]), size], dtype=dtype
        )
        product = helper.output_of(
            "mul",
            {"X": var, "Y": weight},
            {"x_num_col_dims": num_flatten_dims, "y_num_col_dims": 1},
            dtype=dtype,
        )
        products.append(product)
    total = products[0]
    if len(products) > 1:
        total = helper.output_of("sum", {"X": products}, dtype=dtype)
    return helper.append_activation(helper.append_bias_op(total, dim_start=num_flatten_dims))


def _embedding(
    op_type: str,
    layer: str,
    input: Variable,
    size: Any,
    is_sparse: bool,
    is_distributed: bool,
    padding_idx: int | None,
    param_attr: Any,
    dtype: Any,
) -> Variable:
    helper = LayerHelper("embedding", input=input, param_attr=param_attr)
    check_variable_and_dtype(input, "input", ["int64"], layer)
    check_dtype(dtype, "dtype", _FLOATS, layer)
    weight = helper.create_parameter(attr=helper.param_attr, shape=size, dtype=dtype)
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += size[0]
    return helper.output_of(
        op_type,
        {"Ids": input, "W": weight},
        {
            "is_sparse": is_sparse,
            "is_distributed": is_distributed,
            "remote_prefetch": is_sparse and not is_distributed,
            "padding_idx": padding_idx,
        },
        dtype=dtype,
    )


def embedding(
    input: Variable,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up rows of a learnt table; the last dimension of `input` is 1 and becomes the row.

    Args:
        input: int64 ids of shape [..., 1].
        size: the table's shape, [rows, width].
        is_sparse: whether only the rows in use get gradients.
        is_distributed: whether the table lies on parameter servers.
        padding_idx: an id that reads as zeros and is not trained.
        param_attr: the table's attributes.
        dtype: the table's element type.
    """
    return _embedding(
        "lookup_table", "fluid.layers.embedding", input, size, is_sparse, is_distributed,
        padding_idx, param_attr, dtype,
    )  # fmt: skip


def embedding_v2(
    input: Variable,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up rows of a learnt table, as `embedding`, but ids of any shape (`fluid.embedding`)."""
    return _embedding(
        "lookup_table_v2", "fluid.embedding", input, size, is_sparse, is_distributed,
        padding_idx, param_attr, dtype,
    )  # fmt: skip


def _check_dropout(probability: Any, implementation: str) -> None:
    if not isinstance(probability, int | float) or not 0 <= probability <= 1:
        raise ShapeError(
            f"dropout_prob of dropout must be a number between 0.0 and 1.0, not {probability!r}."
        )
    if implementation not in ("downgrade_in_infer", "upscale_in_train"):
        raise ShapeError(
            "dropout_implementation of dropout must be 'downgrade_in_infer' or "
            f"'upscale_in_train', not {implementation!r}."
        )


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Set elements to zero with probability `dropout_prob` while training.

    'downgrade_in_infer' multiplies by the share that is kept when the program is used for
    inference; 'upscale_in_train' divides by it while training.
    """
    helper = LayerHelper("dropout", x=x, name=name)
    check_variable_and_dtype(x, "x", _FLOATS, "dropout")
    _check_dropout(dropout_prob, dropout_implementation)
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    mask = helper.create_variable_for_type_inference(dtype="uint8", stop_gradient=True)
    if not seed and helper.main_program.random_seed != 0:
        seed = helper.main_program.random_seed
    helper.append_op(
        type="dropout",
        inputs={"X": [x]},
        outputs={"Out": [out], "Mask": [mask]},
        attrs={
            "dropout_prob": dropout_prob,
            "is_test": is_test,
            "fix_seed": seed is not None,
            "seed": seed if seed is not None else 0,
            "dropout_implementation": dropout_implementation,
        },
    )
    return out


def softmax(
    input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1
) -> Variable:
    """Turn numbers into probabilities along an axis."""
    check_variable_and_dtype(input, "input", _FLOATS, "softmax")
    return one_op(
        "softmax",
        {"X": input},
        {"axis": axis, "use_cudnn": use_cudnn},
        dtype=input.dtype,
        name=name,
    )


def log_softmax(
    input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return the logarithms of probabilities along an axis, the last by default.

    With `dtype`, the input is converted first.
    """
    from fleetx.static.layers.tensor import cast

    check_variable_and_dtype(input, "input", _FLOATS, "log_softmax")
    helper = LayerHelper("log_softmax", name=name)
    x = input
    if dtype is not None:
        check_dtype(dtype, "dtype", _FLOATS, "log_softmax")
        x = cast(input, dtype)
    shares = helper.output_of(
        "softmax",
        {"X": x},
        {"axis": -1 if axis is None else axis, "use_cudnn": False},
        dtype=x.dtype,
    )
    return helper.output_of("log", {"X": shares}, dtype=x.dtype)


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """Return the cosine between the rows of X and those of Y (or the only row of Y)."""
    check_variable_and_dtype(X, "X", ["float32"], "cos_sim")
    check_variable_and_dtype(Y, "Y", ["float32"], "cos_sim")
    helper = LayerHelper("cos_sim")
    out, x_norm, y_norm = (helper.create_variable_for_type_inference(X.dtype) for _ in range(3))
    helper.append_op(
        type="cos_sim",
        inputs={"X": [X], "Y": [Y]},
        outputs={"Out": [out], "XNorm": [x_norm], "YNorm": [y_norm]},
    )
    return out


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """Return x W_i y for each of `size` learnt matrices W_i."""
    helper = LayerHelper(
        "bilinear_tensor_product",
        x=x,
        act=act,
        name=name,
        param_attr=param_attr,
        bias_attr=bias_attr,
    )
    dtype = helper.input_dtype("x")
    check_dtype(dtype, "x", _FLOATS, "bilinear_tensor_product")
    weight = helper.create_parameter(
        attr=helper.param_attr, shape=[size, x.shape[1], y.shape[1]], dtype=dtype
    )
    out = helper.create_variable_for_type_inference(dtype)
    inputs = {"X": x, "Y": y, "Weight": weight}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [1, size], dtype, is_bias=True)
    helper.append_op(type="bilinear_tensor_product", inputs=inputs, outputs={"Out": out})
    return helper.append_activation(out)


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Return the products of all channels of x with all channels of y, averaged over the image."""
    check_variable_and_dtype(x, "x", ["float32", "float64"], "fsp_matrix")
    check_variable_and_dtype(y, "y", ["float32", "float64"], "fsp_matrix")
    helper = LayerHelper("fsp_matrix", x=x)
    return helper.output_of("fsp", {"X": x, "Y": y}, dtype=x.dtype)


def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Turn the first two columns, shows and clicks, into logarithms, or drop them."""
    helper = LayerHelper("cvm")
    out = helper.create_variable(dtype=input.dtype)
    check_variable_and_dtype(input, "input", _FLOATS, "cvm")
    helper.append_op(
        type="cvm",
        inputs={"X": [input], "CVM": [cvm]},
        outputs={"Y": [out]},
        attrs={"use_cvm": use_cvm},
    )
    return out


def row_conv(
    input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None
) -> Variable:
    """Let each step of a sequence see some steps of the future, feature by feature."""
    helper = LayerHelper("row_conv", input=input, param_attr=param_attr, act=act)
    check_variable_and_dtype(input, "input", ["float32"], "row_conv")
    weight = helper.create_parameter(
        attr=helper.param_attr,
        shape=[future_context_size + 1, input.shape[-1]],
        dtype=input.dtype,
    )
    out = helper.output_of("row_conv", {"X": [input], "Filter": [weight]}, dtype=input.dtype)
    return helper.append_activation(out)
