"""Layers of static graphs with the arguments of Paddle 2.x."""

from typing import Any

from fleetx.static import layers as _layers
from fleetx.static.graph.variable import Variable
from fleetx.static.layers import *  # noqa: F403
from fleetx.static.layers.contrib import sparse_embedding
from fleetx.static.layers.nn import bilinear_tensor_product
from fleetx.static.layers.nn import embedding_v2 as embedding
from paddle._coverage import only


def fc(
    x: Variable | list[Variable],
    size: int,
    num_flatten_dims: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    activation: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return a fully connected layer of one input or of the sum of several."""
    return _layers.fc(x, size, num_flatten_dims, weight_attr, bias_attr, activation, name)


def prelu(
    x: Variable,
    mode: str,
    param_attr: Any = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Return x where it is positive and a learned slope times x elsewhere."""
    if data_format != "NCHW":
        raise ValueError(f"static.nn.prelu takes data_format 'NCHW', not {data_format!r}.")
    return _layers.prelu(x, mode, param_attr, name)


def deform_conv2d(
    x: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Convolve with points shifted by `offset`, and weighted by `mask` if it is given."""
    window, splits = (stride, padding, dilation), (groups, deformable_groups, im2col_step)
    attrs = {"param_attr": weight_attr, "bias_attr": bias_attr, "modulated": mask is not None}
    return _layers.deformable_conv(
        x, offset, mask, num_filters, filter_size, *window, *splits, **attrs, name=name
    )


__all__ = only(
    globals(),
    """
    batch_norm bilinear_tensor_product case cond conv2d conv2d_transpose conv3d
    conv3d_transpose create_parameter crf_decoding data_norm deform_conv2d embedding fc
    group_norm instance_norm layer_norm multi_box_head nce prelu py_func row_conv
    sequence_concat sequence_conv sequence_enumerate sequence_expand sequence_expand_as
    sequence_first_step sequence_last_step sequence_pad sequence_pool sequence_reshape
    sequence_reverse sequence_scatter sequence_slice sequence_softmax sequence_unpad
    sparse_embedding spectral_norm switch_case while_loop
    """,
)
