"""Layers of `contrib` for text matching and trees."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.op_layer import op_layer
from fleetx.static.errors import ShapeError
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import convert_to_list

__all__ = ["match_matrix_tensor", "sequence_topk_avg_pooling", "tree_conv", "var_conv_2d"]


def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: str | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Score each word of a text with each word of another one by x W y, in several channels.

    Args:
        x: sequences of rows, shape [words, width].
        y: as many sequences, of the same width.
        channel_num: the number of matrices W.
        param_attr: the attributes of W, [width, channel_num, width].
        dtype: the element type of W.

    Returns:
        The scores, a sequence of channel_num * words * words numbers per pair, and x W.
    """
    layer = "match_matrix_tensor"
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[1] != y.shape[1]:
        raise ShapeError(f"{layer} takes rows of one width, not {x.shape} and {y.shape}.")
    helper = LayerHelper(layer, act=act, param_attr=param_attr, name=name)
    shape = [x.shape[1], channel_num, y.shape[1]]
    w = helper.create_parameter(helper.param_attr, shape, dtype)
    inputs = {"X": x, "Y": y, "W": w}
    out, between = helper.outputs_of(
        layer, inputs, {"dim_t": channel_num}, "Tmp", Out=dtype, Tmp=dtype
    )
    return helper.append_activation(out), between


def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: Any,
    stride: Any = 1,
    param_attr: Any = None,
    act: str | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Convolve matrices of different sizes.

    Args:
        input: a column of numbers, a sequence per matrix: channels * rows * columns.
        row: sequences whose lengths are the numbers of rows.
        col: sequences whose lengths are the numbers of columns.
        input_channel: the channels of the input.
        output_channel: the channels of the output.
        filter_size: the kernel's height and width; kernels are centred and the input zero-padded.
        stride: the step in both directions.
        dtype: the element type of the filters.
    """
    layer = "var_conv_2d"
    if len(input.shape) != 2:
        raise ShapeError(f"{layer} takes a column of numbers, not shape {input.shape}.")
    height, width = convert_to_list(filter_size, 2, "filter_size")
    down, right = convert_to_list(stride, 2, "stride")
    helper = LayerHelper(layer, act=act, param_attr=param_attr, name=name)
    shape = [int(output_channel), int(input_channel) * height * width]
    w = helper.create_parameter(helper.param_attr, shape, dtype)
    attrs = {
        "InputChannel": input_channel,
        "OutputChannel": output_channel,
        "StrideH": down,
        "StrideW": right,
        "KernelH": height,
        "KernelW": width,
    }
    inputs = {"X": input, "ROW": row, "COLUMN": col, "W": w}
    out, _ = helper.outputs_of(layer, inputs, attrs, "Col", Out=dtype, Col=dtype)
    return helper.append_activation(out)


@op_layer("X=input ROW=row COLUMN=col", output="Out pos", no_grad="pos", input=Variable)
def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: list[int], channel_num: int
) -> Variable:
    """Average the top k numbers of each row of matrices of different sizes.

    Args:
        input: a column of numbers, a sequence per matrix: channels * rows * columns.
        row: sequences whose lengths are the numbers of rows.
        col: sequences whose lengths are the numbers of columns.
        topks: the values of k, in ascending order; each gives a column per channel.
        channel_num: the channels of the input.
    """


def tree_conv(
    nodes_vector: Variable,
    edge_set: Variable,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Convolve trees: each node with its descendants down to a depth.

    Args:
        nodes_vector: vectors of nodes, shape [batch, nodes, width].
        edge_set: int32 edges from parent to child, shape [batch, edges, 2]; nodes count from 1,
            and zeros end the list.
        output_size: the width of the result.
        num_filters: the number of filters; the result is [batch, nodes, output_size, num_filters].
        max_depth: the depth of a filter, at least 2.
    """
    check_type(nodes_vector, "nodes_vector", Variable, "tree_conv")
    check_type(edge_set, "edge_set", Variable, "tree_conv")
    helper = LayerHelper("tree_conv", act=act, bias_attr=bias_attr, name=name)
    if len(nodes_vector.shape) != 3:
        raise ShapeError(
            f"tree_conv takes nodes of shape [batch, nodes, width], not {nodes_vector.shape}."
        )
    shape = [nodes_vector.shape[2], 3, output_size, num_filters]
    w = helper.create_parameter(param_attr, shape, nodes_vector.dtype)
    inputs = {"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": w}
    out = helper.output_of("tree_conv", inputs, {"max_depth": max_depth}, dtype=nodes_vector.dtype)
    return helper.append_activation(helper.append_bias_op(out))
