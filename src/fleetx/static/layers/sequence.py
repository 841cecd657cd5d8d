"""Layers on variable-length sequences (inputs with `lod_level` 1 or more)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype, each
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import INTS, WIDE, WIDE_NUMBERS, one_op
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.errors import ShapeError
from fleetx.static.graph.variable import Variable

_POOL_TYPES = ("AVERAGE", "SUM", "SQRT", "MAX", "LAST", "FIRST")


@checked(input=WIDE)
def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Convolve along each sequence, with zeros beyond its ends.

    Args:
        input: sequences of shape [N, D].
        num_filters: the width of the result.
        filter_size: the number of rows of a filter.
        filter_stride: must be 1.
        padding: has no effect; the result always has the rows of the input.
        padding_start: where the window begins, relative to its row; by default it is centred.
    """
    if filter_stride != 1:
        raise ShapeError(f"filter_stride of sequence_conv must be 1, but is {filter_stride}.")
    attrs = {"param_attr": param_attr, "bias_attr": bias_attr, "act": act, "name": name}
    helper = LayerHelper("sequence_conv", **attrs)
    weight = helper.weight([filter_size * input.shape[1], num_filters], input.dtype)
    product = helper.output_of(
        "sequence_conv",
        {"X": [input], "Filter": [weight]},
        {
            "contextStride": filter_stride,
            "contextStart": -(filter_size // 2) if padding_start is None else padding_start,
            "contextLength": filter_size,
        },
        dtype=input.dtype,
    )
    return helper.append_activation(helper.append_bias_op(product))


@op_layer("X=input", input=WIDE)
def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Softmax over each sequence of numbers (shape [N, 1])."""


@checked(input=WIDE)
def sequence_pool(
    input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0
) -> Variable:
    """Reduce each sequence to one row.

    Args:
        input: sequences of shape [N, ...].
        pool_type: "sum", "average", "sqrt" (sum divided by the root of the length), "max", "last"
            or "first".
        is_test: set if no gradient is needed.
        pad_value: the result for an empty sequence.
    """
    if pool_type.upper() not in _POOL_TYPES:
        kinds = ", ".join(t.lower() for t in _POOL_TYPES)
        raise ShapeError(f"pool_type of sequence_pool must be one of {kinds}, not {pool_type!r}.")
    helper = LayerHelper("sequence_pool")
    out, max_index = helper.outputs_of(
        "sequence_pool",
        {"X": [input]},
        {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value},
        Out=input.dtype,
        MaxIndex=input.dtype,
    )
    if pool_type == "max":
        max_index.stop_gradient = True
    return out


@checked(input=WIDE)
def sequence_first_step(input: Variable) -> Variable:
    """Return the first row of each sequence."""
    return sequence_pool(input=input, pool_type="first")


@checked(input=WIDE)
def sequence_last_step(input: Variable) -> Variable:
    """Return the last row of each sequence."""
    return sequence_pool(input=input, pool_type="last")


def _sequences(value: Any, name: str, layer: str) -> None:
    check_type(value, name, list, layer)
    each(("int64", *WIDE))(value, name, layer)


@checked(input=_sequences)
def sequence_concat(input: list[Variable], name: str | None = None) -> Variable:
    """Concatenate the i-th sequences of several inputs."""
    helper = LayerHelper("sequence_concat", input=input, name=name)
    return helper.output_of("sequence_concat", {"X": input}, dtype=helper.input_dtype())


@op_layer(
    "X=input offset length",
    no_grad="Offset Length",
    input=WIDE_NUMBERS,
    offset=INTS,
    length=INTS,
)
def sequence_slice(
    input: Variable, offset: Variable, length: Variable, name: str | None = None
) -> Variable:
    """Return `length[i]` rows of the i-th sequence, starting at row `offset[i]`."""


@op_layer("x y", x=WIDE_NUMBERS)
def sequence_expand(
    x: Variable, y: Variable, ref_level: int = -1, name: str | None = None
) -> Variable:
    """Repeat the i-th sequence (or row) of `x` as often as sequence i of `y` has items.

    `ref_level` is the level of `y` that counts; the last one by default.
    """


@op_layer("x y", x=WIDE_NUMBERS, y=Variable)
def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeat the i-th row of `x` over the i-th sequence of `y`."""


@op_layer(
    "x pad_value",
    output="Out Length:int64",
    returns="Out Length",
    attrs={"padded_length": "maxlen"},
    no_grad="PadValue Length",
    x=WIDE_NUMBERS,
    pad_value=WIDE_NUMBERS,
)
def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return the sequences as a dense tensor [sequences, maxlen, ...], and their lengths.

    Args:
        x: sequences of shape [N, ...].
        pad_value: a Variable with one value, or with one row.
        maxlen: the padded length; that of the longest sequence by default.
    """
    return changed(maxlen=-1 if maxlen is None else maxlen)


@op_layer("x length", no_grad="Length", x=WIDE_NUMBERS, length=("int64",))
def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """Return sequences made of the first `length[i]` rows of each row of a padded tensor."""


@op_layer("X=input", input=WIDE_NUMBERS)
def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Reshape each sequence into rows of width `new_dim`."""


@op_layer("X=input Ids=index updates", input=WIDE_NUMBERS, index=INTS, updates=WIDE_NUMBERS)
def sequence_scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """Add the i-th sequence of `updates` to row i, at the columns in that of `index`."""


@op_layer("X=input", no_grad="Out", input=INTS)
def sequence_enumerate(
    input: Variable, win_size: int, pad_value: int = 0, name: str | None = None
) -> Variable:
    """Return for each number of each sequence the window of `win_size` that starts there."""


@op_layer(
    "x",
    output="Y",
    element_type="dtype",
    attrs={"out_dtype": "dtype"},
    tensors="MaxLenTensor=maxlen",
    no_grad="Y",
    x=Variable,
)
def sequence_mask(
    x: Variable, maxlen: Any = None, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Turn lengths into masks: a length n becomes n ones, then zeros up to `maxlen`.

    `maxlen` is a number or a Variable; by default it is the largest length.
    """


@op_layer("x", output="Y", x=("int8", "uint8", *WIDE_NUMBERS))
def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """Reverse each sequence."""


@checked(x=WIDE_NUMBERS)
def lod_reset(x: Variable, y: Variable | None = None, target_lod: Any = None) -> Variable:
    """Return `x` with other offsets: those of `y`, the numbers in `y`, or `target_lod`."""
    if y is not None:
        check_type(y, "y", Variable, "lod_reset")
        return one_op("lod_reset", {"X": x, "Y": y}, dtype=x.dtype)
    if target_lod is None:
        raise ValueError("lod_reset needs y or target_lod.")
    return one_op("lod_reset", {"X": x}, {"target_lod": list(target_lod)}, dtype=x.dtype)


@op_layer("x", op="lod_reset", tensors="Y=level", attrs={"target_lod": "level"})
def lod_append(x: Variable, level: Any) -> Variable:
    """Return `x` with one more level of offsets: a list of numbers or a Variable."""
    if x is None:
        raise ValueError("x of lod_append must be a Variable, not None.")
    if not isinstance(level, Variable | Iterable):
        raise ValueError(
            f"level of lod_append must be a list, tuple or Variable, not {type(level).__name__}."
        )
    check_variable_and_dtype(x, "x", WIDE_NUMBERS, "lod_append")
    return changed(level=level if isinstance(level, Variable) else list(level), append=True)


@checked(input=("float32",))
def im2sequence(
    input: Variable,
    filter_size: Any = 1,
    stride: Any = 1,
    padding: Any = 0,
    input_image_size: Variable | None = None,
    out_stride: Any = 1,
    name: str | None = None,
) -> Variable:
    """Return each image as the sequence of its patches.

    Args:
        input: images of shape [N, C, H, W].
        filter_size: the height and width of a patch, or one number for both.
        stride: the steps between patches.
        padding: zeros around the image: one number, (height, width) or (up, left, down, right).
        input_image_size: the height and width of each image before padding.
        out_stride: the downsampling factor from `input_image_size` to `input`.
    """

    def pair(value: Any) -> list[int]:
        return [value, value] if isinstance(value, int) else list(value)

    paddings = pair(padding)
    attrs = {
        "kernels": pair(filter_size),
        "strides": pair(stride),
        "paddings": paddings if len(paddings) == 4 else paddings * 2,
    }
    inputs: dict[str, Any] = {"X": [input]}
    if input_image_size is not None:
        inputs["Y"] = [input_image_size]
        attrs["out_stride"] = pair(out_stride)
    return one_op("im2sequence", inputs, attrs, dtype=input.dtype, name=name)


export_defined(globals())
