"""Linear maps, embedding, dropout, padding, resizing and other common functions."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import FLOATS, one_op, tensor_list
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.building.spatial_variants import LAYOUTS, of_axes
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.math import scale
from fleetx.static.layers.tensor import cast, squeeze, unsqueeze
from fleetx.static.layers.vision import unfold as unfold
from fleetx.static.layers.window_args import check_choice, convert_to_list
from fleetx.static.nn.functional import pooling
from fleetx.static.nn.functional.emit import binary, constant, reduce
from fleetx.static.tensor.common import unary


def linear(
    x: Variable, weight: Variable, bias: Variable | None = None, name: str | None = None
) -> Variable:
    """Return x weight + bias; the weight has shape [inputs, outputs]."""
    helper = LayerHelper("linear", name=name)
    check_variable_and_dtype(x, "x", FLOATS, "linear")
    attrs = {"trans_x": False, "trans_y": False}
    out = helper.output_of("matmul_v2", {"X": x, "Y": weight}, attrs, dtype=x.dtype)
    if bias is None:
        return out
    inputs = {"X": out, "Y": bias}
    return helper.output_of("elementwise_add", inputs, {"axis": -1}, dtype=x.dtype)


@op_layer(
    "Ids=x W=weight",
    op="lookup_table_v2",
    output="Out:weight",
    attrs={"is_sparse": "sparse"},
    unused="name",
)
def embedding(
    x: Variable,
    weight: Variable,
    padding_idx: int | None = None,
    sparse: bool = False,
    name: str | None = None,
) -> Variable:
    """Look up rows of `weight` by ids; `padding_idx` gives a row of zeros."""
    kinds = ("uint8", "int8", "int16", "int32", "int64")
    check_variable_and_dtype(x, "input", kinds, "embedding")
    rows = weight.shape[0]
    if padding_idx is None:
        padding_idx = -1
    elif not -rows <= padding_idx < rows:
        raise ValueError(f"padding_idx must be within [-{rows}, {rows}), but is {padding_idx}.")
    elif padding_idx < 0:
        padding_idx += rows
    return changed(padding_idx=padding_idx, is_distributed=False, remote_prefetch=False)


def _check_probability(p: Any, layer: str) -> None:
    if not isinstance(p, int | float):
        raise TypeError(f"p of {layer} must be a number, not {type(p).__name__}.")
    if not 0 <= p <= 1:
        raise ValueError(f"p of {layer} must be between 0 and 1, but is {p}.")


def dropout(
    x: Variable,
    p: float = 0.5,
    axis: Any = None,
    training: bool = True,
    mode: str = "upscale_in_train",
    name: str | None = None,
) -> Variable:
    """Zero elements with probability p in training.

    Args:
        x: the input.
        p: the probability of zeroing an element.
        axis: the axes of the mask, which is broadcast along the others; all by default.
        training: whether to apply dropout.
        mode: 'upscale_in_train' divides kept elements by 1 - p in training,
            'downscale_in_infer' multiplies all of them by 1 - p in inference.
    """
    _check_probability(p, "dropout")
    check_choice(mode, "mode", ("upscale_in_train", "downscale_in_infer"), "dropout")
    helper = LayerHelper("dropout", name=name)
    check_variable_and_dtype(x, "x", FLOATS, "dropout")
    attrs: dict[str, Any] = {
        "dropout_prob": float(p),
        "is_test": not training,
        "dropout_implementation": "downgrade_in_infer" if mode == "downscale_in_infer" else mode,
    }
    seed = helper.main_program.random_seed
    if seed:
        attrs |= {"fix_seed": True, "seed": seed}
    if axis is not None:
        axes = [axis] if isinstance(axis, int) else list(axis)
        if any(not 0 <= a < len(x.shape) for a in axes):
            raise ValueError(
                f"axis of dropout must be within [0, {len(x.shape)}), but is {axis!r}."
            )
        attrs["axis"] = axes
    out, _ = helper.outputs_of(
        "dropout" if axis is None else "dropout_nd",
        {"X": [x]},
        attrs,
        Out=x.dtype,
        Mask="uint8",
        no_grad="Mask",
    )
    return out


def _dropout_channels(
    n: int,
    x: Variable,
    p: float = 0.5,
    training: bool = True,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Zero whole channels of images with probability p in training."""
    check_choice(data_format, "data_format", LAYOUTS[n], f"dropout{n}d")
    axis = [0, n + 1 if data_format.endswith("C") else 1]
    return dropout(x, p=p, axis=axis, training=training)


def alpha_dropout(
    x: Variable, p: float = 0.5, training: bool = True, name: str | None = None
) -> Variable:
    """Drop elements to SELU's lower limit with probability p; keep mean and variance of x."""
    _check_probability(p, "alpha_dropout")
    check_variable_and_dtype(x, "x", ["float32", "float64"], "alpha_dropout")
    if not training:
        return x
    if p == 1:
        return scale(x, 0.0)
    limit = -1.6732632423543772 * 1.0507009873554805
    factor = ((1 - p) * (1 + p * limit**2)) ** -0.5
    drawn = layers.uniform_random(layers.shape(x), dtype=x.dtype, min=0.0, max=1.0)
    drawn.stop_gradient = True
    kept = cast(binary("greater_equal", drawn, constant(p, x.dtype)), x.dtype)
    kept.stop_gradient = True
    # factor * (x, or the limit where it is dropped) - factor * limit * p
    dropped = scale(kept, -factor * limit, factor * limit * (1 - p))
    return binary("elementwise_add", scale(binary("elementwise_mul", x, kept), factor), dropped)


dropout2d = of_axes(_dropout_channels, "dropout2d", 2)
dropout3d = of_axes(_dropout_channels, "dropout3d", 3)


@op_layer(
    "x",
    op="one_hot_v2",
    layer="one_hot_v2",
    element_type="float32",
    attrs={"depth": "num_classes"},
    tensors="depth_tensor=num_classes",
    unused="name",
    no_grad="depth_tensor Out",
)
def one_hot(x: Variable, num_classes: Any, name: str | None = None) -> Variable:
    """Return the one-hot vectors of ids."""
    return changed(allow_out_of_range=False)


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    name: str | None = None,
) -> Variable:
    """Smooth labels with a prior, uniform by default: (1 - epsilon) label + epsilon prior."""
    return layers.label_smooth(label, prior_dist, epsilon, label.dtype, name)


def normalize(
    x: Variable, p: float = 2, axis: int = 1, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """Divide x by its p-norm along an axis, but at least by epsilon."""
    if len(x.shape) == 1 and axis not in (0, -1):
        raise ValueError(f"axis of normalize must be 0 or -1 for 1-D data, but is {axis}.")
    attrs = {"axis": axis, "porder": float(p), "keepdim": True, "epsilon": epsilon}
    norm = unary("p_norm", x, attrs)
    floor = constant(epsilon, x.dtype)
    return binary("elementwise_div", x, binary("elementwise_max", norm, floor))


def cosine_similarity(x1: Variable, x2: Variable, axis: int = 1, eps: float = 1e-8) -> Variable:
    """Return the cosine similarity of x1 and x2 along an axis."""
    axes = [axis % len(x1.shape)]
    dot = reduce("sum", binary("elementwise_mul", x1, x2), axes)
    first, second = (
        reduce("sum", binary("elementwise_mul", x, x), [axis % len(x.shape)]) for x in (x1, x2)
    )
    product = binary("elementwise_mul", first, second)
    product = unary("clip", product, {"min": float(eps * eps), "max": 3.4028234663852886e38})
    return binary("elementwise_div", dot, unary("sqrt", product))


@op_layer("X=x1 Y=x2 weight bias", op="bilinear_tensor_product", unused="name")
def bilinear(
    x1: Variable,
    x2: Variable,
    weight: Variable,
    bias: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return x1 W_i x2 + bias for each matrix W_i of `weight`."""


def _pad_last_axes(x: Variable, pad: Any, mode: str, value: float, data_format: str) -> Variable:
    """Pad the spatial axes with the op for volumes; missing axes are inserted."""
    rank = len(x.shape)
    last = data_format.endswith("C")
    # The op takes width, height, depth: signals and images become volumes of size 1 in other axes.
    missing = {3: [2, 3] if last else [3, 4], 4: [1] if last else [2], 5: []}[rank]
    inputs: dict[str, Any] = {"X": [unsqueeze(x, missing) if missing else x]}
    attrs: dict[str, Any] = {
        "mode": mode,
        "value": float(value),
        "data_format": "NDHWC" if last else "NCDHW",
    }
    if isinstance(pad, Variable):
        pad = cast(pad, "int32")
        zeros = layers.fill_constant([6 - 2 * (rank - 2)], "int32", 0) if rank < 5 else None
        parts = {3: [zeros, pad], 4: [pad, zeros], 5: [pad]}[rank]
        inputs["Paddings"] = [layers.concat(parts, 0) if len(parts) > 1 else pad]
        attrs["paddings"] = []
    else:
        pad = [int(p) for p in pad]
        attrs["paddings"] = {3: [0, 0, 0, 0, *pad], 4: [*pad, 0, 0], 5: pad}[rank]
    out = one_op("pad3d", inputs, attrs, dtype=x.dtype)
    return squeeze(out, missing) if missing else out


def pad(
    x: Variable,
    pad: Any,
    mode: str = "constant",
    value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Pad a tensor.

    Args:
        x: the input.
        pad: with as many pairs as x has dimensions, (before, after) from the first one on; else
            pairs for the spatial dimensions from the last one on (left, right, top, bottom, ...).
        mode: 'constant', 'reflect', 'replicate' or 'circular'.
        value: what 'constant' pads with.
        data_format: the layout, such as NCHW or NHWC.
        name: accepted, without effect.
    """
    check_choice(mode, "mode", ("constant", "reflect", "replicate", "circular"), "pad")
    rank = len(x.shape)
    if mode == "constant" and isinstance(pad, list | tuple) and len(pad) == 2 * rank:
        attrs = {"paddings": [int(p) for p in pad], "pad_value": float(value)}
        return unary("pad", x, attrs)
    if rank - 2 not in LAYOUTS:
        raise ValueError(f"pad takes data of 3 to 5 dimensions, but the shape is {x.shape}.")
    check_choice(data_format.upper(), "data_format", LAYOUTS[rank - 2], "pad")
    return _pad_last_axes(x, pad, mode, value, data_format.upper())


def zeropad2d(
    x: Variable, padding: Any, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Pad images with zeros: left, right, top, bottom."""
    return pad(x, convert_to_list(padding, 4, "padding"), "constant", 0.0, data_format)


_INTERP_RANKS = {
    "linear": (3,),
    "bilinear": (4,),
    "bicubic": (4,),
    "trilinear": (5,),
    "nearest": (4, 5),
    "area": (3, 4, 5),
}


def interpolate(
    x: Variable,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Resize signals, images or volumes to a size or by a factor.

    Args:
        x: the input.
        size: the new size: numbers, Variables, or one Variable.
        scale_factor: the factor instead: a number, one per axis, or a Variable.
        mode: 'nearest', 'linear', 'bilinear', 'bicubic', 'trilinear' or 'area'.
        align_corners: align the centres of the corner pixels of input and output.
        align_mode: without `align_corners`, 0 aligns pixel centres, 1 upper left corners.
        data_format: the layout, such as NCHW or NHWC.
    """
    method = mode.lower()
    check_choice(method, "mode", tuple(_INTERP_RANKS), "interpolate")
    rank = len(x.shape)
    if rank not in _INTERP_RANKS[method]:
        raise ValueError(f"mode {mode!r} does not take data of {rank} dimensions ({x.shape}).")
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate needs either size or scale_factor.")
    check_type(align_corners, "align_corners", bool, "interpolate")
    check_choice(align_mode, "align_mode", (0, 1), "interpolate")
    if align_corners and method == "nearest":
        raise ValueError("align_corners of interpolate cannot be used with mode 'nearest'.")
    if method == "area":
        return _area(x, size)
    helper = LayerHelper(f"{method}_interp_v2", name=name)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {
        "out_d": -1,
        "out_h": -1,
        "out_w": -1,
        "interp_method": method,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": "NHWC" if data_format.upper().endswith("C") else "NCHW",
    }
    if isinstance(size, Variable):
        inputs["OutSize"] = cast(size, "int32")
    elif size is not None:
        sizes = convert_to_list(size, rank - 2, "size") if isinstance(size, int) else list(size)
        if len(sizes) != rank - 2:
            raise ValueError(f"size must have {rank - 2} numbers for this input, but is {size!r}.")
        if any(isinstance(s, Variable) for s in sizes):
            inputs["SizeTensor"] = tensor_list(helper, sizes)
        for key, value in zip(("out_d", "out_h", "out_w")[5 - rank :], sizes, strict=True):
            attrs[key] = -1 if isinstance(value, Variable) else int(value)
    elif isinstance(scale_factor, Variable):
        inputs["Scale"] = scale_factor
    else:
        factors = scale_factor if isinstance(scale_factor, list | tuple) else [scale_factor]
        factors = [float(f) for f in factors] * (1 if len(factors) > 1 else rank - 2)
        if len(factors) != rank - 2 or any(f <= 0 for f in factors):
            raise ValueError(
                f"scale_factor must be positive, one number or {rank - 2}, but is {scale_factor!r}."
            )
        attrs["scale"] = factors
    return helper.output_of(f"{method}_interp_v2", inputs, attrs, dtype=x.dtype)


def _area(x: Variable, size: Any) -> Variable:
    if size is None:
        raise ValueError("interpolate needs size in mode 'area'.")
    return getattr(pooling, f"adaptive_avg_pool{len(x.shape) - 2}d")(x, size)


upsample = interpolate


export_defined(globals(), "unfold")
