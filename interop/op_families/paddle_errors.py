"""Cases in which Paddle 1.8.5 computes something else than its documents say: see README.md."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_cases import Draw, OpCase, family


@family
def errors_of_paddle(draw: Draw) -> Iterator[OpCase]:
    attrs = {"pooling_type": "max", "ksize": [3, 2], "adaptive": True}
    x = {"X": draw.apart(1, 1, 7, 5)}
    yield OpCase("pool2d", x, attrs, differs="`adaptive` is ignored by max pooling")
    attrs = {"axes": [0], "starts": [6], "ends": [0], "strides": [-2], "infer_flags": [1]}
    why = "a negative stride counts from the wrong end"
    yield OpCase("strided_slice", {"Input": draw.floats(8, 2)}, attrs, differs=why)
    inputs = {"X": draw.floats(4, 2), "Ids": np.array([1, 3]), "Updates": draw.floats(2, 2)}
    why = "X gets a gradient for the rows that are overwritten"
    yield OpCase("scatter", inputs, {"overwrite": True}, grads="X", differs=why)
    why = "the gradient is the forward permutation"
    if draw.dtype == "float64":
        why = "every other number is left uninitialised"
    x = {"X": draw.floats(1, 6, 2, 1)}
    yield OpCase("shuffle_channel", x, {"group": 2}, grads="X", differs=why)
    inputs = {"Logits": draw.floats(3, 2), "Label": draw.floats(3, 2, low=1, high=2)}
    why = "the gradient takes labels for shares that sum to 1"
    yield OpCase(
        "softmax_with_cross_entropy", inputs, {"soft_label": True}, "Softmax Loss", "Logits",
        "Loss", differs=why,
    )  # fmt: skip
    inputs = {"Weight": draw.floats(3, 4), "U": draw.floats(3), "V": draw.floats(4)}
    why = "the gradient is right only if that of the output is the same everywhere"
    yield OpCase("spectral_norm", inputs, {"dim": 0, "power_iters": 2}, grads="Weight", differs=why)
    if draw.dtype == "float64":
        inputs = {"X": draw.floats(4, 5), "Y": draw.floats(3, 2)}
        why = "the gradient takes rows of another length"
        yield OpCase("pad_constant_like", inputs, {"pad_value": 0.5}, grads="Y", differs=why)
    inputs = {"Theta": draw.floats(1, 2, 3)}
    why = "divides by 0 for one row or column"
    attrs = {"output_shape": [1, 3, 1, 2]}
    yield OpCase("affine_grid", inputs, attrs, "Output", differs=why)
    why = "the gradient of columns uses the number of rows"
    inputs = {"Input": draw.floats(1, 4, 7, 7), "ROIs": (draw.boxes(1, scale=6), [[1]])}
    inputs["Trans"] = draw.floats(1, 2, 2, 4)
    attrs = {"no_trans": False, "spatial_scale": 1.0, "output_dim": 4, "group_size": [1, 1]}
    attrs |= {"pooled_height": 2, "pooled_width": 4, "part_size": [2, 4], "sample_per_part": 2}
    attrs["trans_std"] = 0.3
    yield OpCase(
        "deformable_psroi_pooling", inputs, attrs, "Output TopCount", "Trans", "Output", differs=why
    )
