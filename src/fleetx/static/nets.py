"""Small nets of several layers: convolution with pooling, gated units, attention.

The ops they append, and their order, are those of `fluid.nets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.graph.dtypes import dtype_name
from fleetx.static.graph.variable import Variable


def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: Any,
    pool_size: Any,
    pool_stride: Any,
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    conv_dilation: Any = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """Return one convolution followed by one pooling."""
    features = layers.conv2d(
        input=input,
        num_filters=num_filters,
        filter_size=filter_size,
        stride=conv_stride,
        padding=conv_padding,
        dilation=conv_dilation,
        groups=conv_groups,
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        use_cudnn=use_cudnn,
    )
    return layers.pool2d(
        input=features,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        pool_padding=pool_padding,
        global_pooling=global_pooling,
        use_cudnn=use_cudnn,
    )


def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: Any,
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: Any = False,
    conv_batchnorm_drop_rate: Any = 0.0,
    pool_stride: Any = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Return several convolutions, each with optional batch norm and dropout, and one pooling.

    Every `conv_*` argument and `param_attr` is one value for all, or a list with one each.
    """
    check_type(conv_num_filter, "conv_num_filter", (list, tuple), "img_conv_group")
    count = len(conv_num_filter)
    paddings = _one_each(conv_padding, count, "conv_padding")
    sizes = _one_each(conv_filter_size, count, "conv_filter_size")
    attrs = _one_each(param_attr, count, "param_attr")
    norms = _one_each(conv_with_batchnorm, count, "conv_with_batchnorm")
    rates = _one_each(conv_batchnorm_drop_rate, count, "conv_batchnorm_drop_rate")
    x = input
    for i, filters in enumerate(conv_num_filter):
        x = layers.conv2d(
            input=x,
            num_filters=filters,
            filter_size=sizes[i],
            padding=paddings[i],
            param_attr=attrs[i],
            act=None if norms[i] else conv_act,
            use_cudnn=use_cudnn,
        )
        if norms[i]:
            x = layers.batch_norm(input=x, act=conv_act)
            if abs(rates[i]) > 1e-5:
                x = layers.dropout(x=x, dropout_prob=rates[i])
    return layers.pool2d(
        input=x,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        use_cudnn=use_cudnn,
    )


def _one_each(value: Any, count: int, name: str) -> Sequence[Any]:
    if not hasattr(value, "__len__"):
        return [value] * count
    if len(value) != count:
        raise ValueError(
            f"{name} of img_conv_group has {len(value)} entries for {count} convolutions."
        )
    return list(value)


def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Variable:
    """Return a convolution over the steps of each sequence, pooled to one row per sequence."""
    check_variable_and_dtype(input, "input", ["float32", "float64"], "sequence_conv_pool")
    features = layers.sequence_conv(
        input=input,
        num_filters=num_filters,
        filter_size=filter_size,
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
    )
    return layers.sequence_pool(input=features, pool_type=pool_type)


def glu(input: Variable, dim: int = -1) -> Variable:
    """Apply a gated linear unit: one half of the input times the sigmoid of the other half."""
    check_variable_and_dtype(input, "input", ["float16", "float32", "float64"], "glu")
    value, gate = layers.split(input, num_or_sections=2, dim=dim)
    return layers.elementwise_mul(x=value, y=layers.sigmoid(x=gate))


def scaled_dot_product_attention(
    queries: Variable,
    keys: Variable,
    values: Variable,
    num_heads: int = 1,
    dropout_rate: float = 0.0,
) -> Variable:
    """Return attention of the queries to the keys, over [batch, length, size] values.

    With more than one head, queries, keys and values are first projected by an `fc` each.
    """
    _check_attention(queries, keys, values, num_heads)
    key_size = keys.shape[-1] // num_heads
    if num_heads > 1:
        queries, keys, values = (
            layers.fc(input=x, size=x.shape[-1], num_flatten_dims=2)
            for x in (queries, keys, values)
        )
    q, k, v = (_split_heads(x, num_heads) for x in (queries, keys, values))
    scores = layers.matmul(x=layers.scale(x=q, scale=key_size**-0.5), y=k, transpose_y=True)
    rows = layers.reshape(x=scores, shape=[-1, scores.shape[-1]], act="softmax")
    weights = layers.reshape(x=rows, shape=list(scores.shape))
    if dropout_rate:
        weights = layers.dropout(weights, dropout_prob=dropout_rate, is_test=False)
    return _join_heads(layers.matmul(weights, v))


def _check_attention(q: Variable, k: Variable, v: Variable, heads: int) -> None:
    layer = "scaled_dot_product_attention"
    inputs = {"queries": q, "keys": k, "values": v}
    for name, x in inputs.items():
        check_variable_and_dtype(x, name, ["float32", "float64"], layer)
        if len(x.shape) != 3:
            raise ValueError(f"{name} of {layer} must have 3 dimensions, not shape {x.shape}.")
    if not q.dtype == k.dtype == v.dtype:
        types = ", ".join(f"{name} {dtype_name(x.dtype)}" for name, x in inputs.items())
        raise TypeError(f"the inputs of {layer} must be of one data type, but they are {types}.")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"queries and keys of {layer} must have the same size, but their shapes are {q.shape} "
            f"and {k.shape}."
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"keys and values of {layer} must have the same length, but their shapes are {k.shape} "
            f"and {v.shape}."
        )
    for name, x in (("keys", k), ("values", v)):
        if x.shape[-1] % heads:
            raise ValueError(
                f"the size {x.shape[-1]} of {name} of {layer} must be a multiple of "
                f"num_heads={heads}."
            )


def _split_heads(x: Variable, heads: int) -> Variable:
    if heads == 1:
        return x
    parts = layers.reshape(x=x, shape=[*x.shape[:-1], heads, x.shape[-1] // heads])
    return layers.transpose(x=parts, perm=[0, 2, 1, 3])


def _join_heads(x: Variable) -> Variable:
    if len(x.shape) == 3:
        return x
    joined = layers.transpose(x, perm=[0, 2, 1, 3])
    batch, length, heads, size = joined.shape
    return layers.reshape(x=joined, shape=[batch, length, heads * size])


export_defined(globals())
