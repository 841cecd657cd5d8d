"""Layers that generate anchors on feature maps, and the prediction head of SSD."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.conv import conv2d
from fleetx.static.layers.joining import concat
from fleetx.static.layers.tensor import flatten, reshape, transpose

_VARIANCE = (0.1, 0.1, 0.2, 0.2)


def _floats(value: Any) -> list[float]:
    return [float(v) for v in (value if isinstance(value, list | tuple) else [value])]


def _pair(value: Any, name: str, layer: str) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"{name} of {layer} must be a list of width and height, not {value!r}.")
    return _floats(value)


# A layer that returns boxes and their variances, through which no gradients flow.
_boxes = functools.partial(
    op_layer,
    output="Boxes Variances",
    returns="Boxes Variances",
    no_grad="Boxes Variances",
    attrs={"variances": "variance"},
    unused="name steps",
)


@_boxes("input image", input=("uint8", "int8", *WIDE))
def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: Any,
    max_sizes: Any = None,
    aspect_ratios: Any = (1.0,),
    variance: Sequence[float] = _VARIANCE,
    flip: bool = False,
    clip: bool = False,
    steps: Sequence[float] = (0.0, 0.0),
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """Return boxes of all sizes and ratios at each place of a feature map, and their variances."""
    step_w, step_h = _pair(steps, "steps", "prior_box")
    largest = [] if max_sizes is None else _floats(max_sizes)
    return changed(
        min_sizes=_floats(min_sizes),
        max_sizes=largest if largest and largest[0] > 0 else None,
        aspect_ratios=_floats(aspect_ratios),
        step_w=step_w,
        step_h=step_h,
    )


@_boxes(
    "input image",
    input=WIDE,
    densities=list | tuple,
    fixed_sizes=list | tuple,
    fixed_ratios=list | tuple,
)
def density_prior_box(
    input: Variable,
    image: Variable,
    densities: Any = None,
    fixed_sizes: Any = None,
    fixed_ratios: Any = None,
    variance: Sequence[float] = _VARIANCE,
    clip: bool = False,
    steps: Sequence[float] = (0.0, 0.0),
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return boxes like `prior_box`, with `density` x `density` centres per cell for each size."""
    if len(densities) != len(fixed_sizes):
        raise ValueError(
            f"density_prior_box got {len(densities)} densities for {len(fixed_sizes)} fixed_sizes: "
            "give one density per size."
        )
    step_w, step_h = _pair(steps, "steps", "density_prior_box")
    return changed(
        step_w=step_w,
        step_h=step_h,
        densities=[int(d) for d in densities],
        fixed_sizes=_floats(fixed_sizes),
        fixed_ratios=_floats(fixed_ratios),
    )


@_boxes(
    "input",
    output="Anchors Variances",
    returns="Anchors Variances",
    no_grad="Anchors Variances",
    unused="name",
)
def anchor_generator(
    input: Variable,
    anchor_sizes: Any = None,
    aspect_ratios: Any = None,
    variance: Sequence[float] = _VARIANCE,
    stride: Any = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return anchors of all ratios and sizes, in pixels, and their variances."""
    return changed(
        anchor_sizes=_floats(anchor_sizes),
        aspect_ratios=_floats(aspect_ratios),
        stride=_pair(stride, "stride", "anchor_generator"),
    )


def _sizes_from_ratios(
    count: int, base_size: float, min_ratio: int, max_ratio: int
) -> tuple[list[float], list[float]]:
    """Return the minimum and maximum box size per map: evenly spaced ratios of the image."""
    step = (max_ratio - min_ratio) // (count - 2)
    ratios = range(min_ratio, max_ratio + 1, step)
    smallest = [base_size * 0.10, *(base_size * ratio / 100.0 for ratio in ratios)]
    return smallest, [base_size * 0.20, *(base_size * (ratio + step) / 100.0 for ratio in ratios)]


def multi_box_head(
    inputs: Sequence[Variable],
    image: Variable,
    base_size: float,
    num_classes: int,
    aspect_ratios: Any,
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Any = None,
    max_sizes: Any = None,
    steps: Any = None,
    step_w: Any = None,
    step_h: Any = None,
    offset: float = 0.5,
    variance: Sequence[float] = _VARIANCE,
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """Predict locations and classes of the boxes of several maps, and return those boxes too.

    Returns:
        Locations [N, boxes, 4], classes [N, boxes, classes], boxes and variances [boxes, 4].
    """
    if not isinstance(inputs, list | tuple):
        raise ValueError("inputs of multi_box_head must be a list of feature maps.")
    count = len(inputs)
    if min_sizes is None and max_sizes is None and count > 2:
        if min_ratio is None or max_ratio is None:
            raise ValueError("multi_box_head needs min_ratio and max_ratio, or min_sizes.")
        min_sizes, max_sizes = _sizes_from_ratios(count, base_size, min_ratio, max_ratio)
    if steps is not None:
        step_w = step_h = steps
    lists = {
        "min_sizes": min_sizes,
        "max_sizes": max_sizes,
        "aspect_ratios": aspect_ratios or None,
        "step_w": step_w,
        "step_h": step_h,
    }
    for key, value in lists.items():
        needed = key in ("min_sizes", "max_sizes")
        if (value is None and not needed) or (
            isinstance(value, list | tuple) and len(value) == count
        ):
            continue
        raise ValueError(f"{key} of multi_box_head must be a list with {count} items, one per map.")
    parts: list[tuple[Variable, ...]] = []
    for i, features in enumerate(inputs):
        step = [step_w[i] if step_w else 0.0, step_h[i] if step_h else 0.0]
        ratios = aspect_ratios[i] if aspect_ratios else []
        boxes, variances = prior_box(
            features, image, min_sizes[i], max_sizes[i], ratios, variance, flip, clip, step, offset,
            None, min_max_aspect_ratios_order,
        )  # fmt: skip
        row: list[Variable] = []
        for width in (4, num_classes):
            out = conv2d(features, boxes.shape[2] * width, kernel_size, stride, pad)
            row.append(flatten(transpose(out, [0, 2, 3, 1]), 1))
        parts.append((*row, boxes, variances))
    if count == 1:
        location, confidence, boxes, variances = parts[0]
        return location, confidence, boxes, variances
    locations, confidences, all_boxes, all_variances = zip(*parts, strict=True)
    boxes, variances = (
        concat([flatten(part, 3) for part in group]) for group in (all_boxes, all_variances)
    )
    boxes.stop_gradient = variances.stop_gradient = True
    location = reshape(concat(list(locations), 1), [0, -1, 4])
    confidence = reshape(concat(list(confidences), 1), [0, -1, num_classes])
    return location, confidence, boxes, variances


export_defined(globals())
