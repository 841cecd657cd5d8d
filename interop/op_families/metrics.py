"""Cases of metrics, of normalisations with running statistics, and of remaining layout ops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_cases import Draw, OpCase, family, settings


@family
def metrics(draw: Draw) -> Iterator[OpCase]:
    for slide in (0, 1, 3):
        for thresholds in (1, 31):
            inputs = {"Predict": draw.floats(9, 2, low=0), "Label": draw.ints(2, 9, 1)}
            for slot in ("StatPos", "StatNeg"):
                if not slide:
                    inputs[slot] = draw.ints(4, 1, thresholds + 1)
                    continue
                # the last batches, their sum, and the number of batches so far
                window = draw.ints(4, slide, thresholds + 1)
                inputs[slot] = np.concatenate([window.ravel(), window.sum(0), [slide + 1]])
            attrs = {"curve": "ROC", "num_thresholds": thresholds, "slide_steps": slide}
            outputs = {"StatPosOut": "StatPos", "StatNegOut": "StatNeg"}
            yield OpCase("auc", inputs, attrs, "AUC StatPosOut StatNegOut", in_place=outputs)
    for classes in (1, 4):
        inputs = {"MaxProbs": draw.floats(7, 1, low=0)}
        inputs |= {s: draw.ints(classes, 7, 1, dtype="int32") for s in ("Indices", "Labels")}
        outputs = "BatchMetrics AccumMetrics AccumStatesInfo"
        yield OpCase("precision_recall", inputs, {"class_number": classes}, outputs)
        inputs["Weights"] = draw.floats(7, 1, low=0)
        inputs["StatesInfo"] = draw.floats(classes, 4, low=0)
        yield OpCase("precision_recall", inputs, {"class_number": classes}, outputs)
    x = draw.floats(3, 5)
    near = (x + draw.floats(3, 5) * 1e-6).astype(draw.dtype)
    nan = np.where(x > 0.5, np.nan, x).astype(draw.dtype)
    for left, right in ((x, x), (x, near), (x, x + 1), (nan, nan)):
        for same in (False, True):
            attrs = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": same}
            yield OpCase("allclose", {"Input": left, "Other": right}, attrs)
    for y in (x, near):
        yield OpCase("equal_reduce", {"X": x, "Y": y})


@family
def running_statistics(draw: Draw) -> Iterator[OpCase]:
    for attrs in settings(epsilon=[1e-4, 1e-3], enable_scale_and_shift=[False, True]):
        inputs = {"X": draw.floats(4, 3), "BatchSize": draw.floats(3, low=5, high=9)}
        inputs |= {"BatchSum": draw.floats(3), "BatchSquareSum": draw.floats(3, low=1, high=5)}
        if attrs["enable_scale_and_shift"]:
            inputs |= {"scale_w": draw.floats(3), "bias": draw.floats(3)}
        grads = "X scale_w bias" if "bias" in inputs else "X"
        yield OpCase("data_norm", inputs, attrs, "Y Means Scales", grads, "Y")
    for attrs in settings(
        is_test=[False, True], use_global_stats=[False, True], data_layout=["NCHW", "NHWC"],
        fuse_with_relu=[False],
    ):  # fmt: skip
        shape = (3, 4, 2, 5) if attrs["data_layout"] == "NCHW" else (3, 2, 5, 4)
        inputs = {"X": draw.floats(*shape), "Scale": draw.floats(4), "Bias": draw.floats(4)}
        inputs |= {"Mean": draw.floats(4), "Variance": draw.floats(4, low=0.5, high=2)}
        frozen = attrs["is_test"] or attrs["use_global_stats"]
        outputs = "Y MeanOut VarianceOut SavedMean SavedVariance"
        yield OpCase(
            "batch_norm", inputs, {**attrs, "epsilon": 1e-3, "momentum": 0.8}, outputs,
            "" if attrs["is_test"] else "X Scale Bias", "Y",
            hidden="SavedMean SavedVariance" if frozen else "",
            in_place={"MeanOut": "Mean", "VarianceOut": "Variance"},
        )  # fmt: skip
    for activation in ("", "identity", "leaky_relu", "elu"):
        inputs = {"X": draw.apart(3, 4, 2, 5), "Scale": draw.floats(4, low=0.5)}
        inputs |= {"Mean": draw.floats(4), "Variance": draw.floats(4, low=0.5, high=2)}
        inputs |= {"Bias": draw.floats(4)}
        attrs = {"activation": activation, "alpha": 0.2, "epsilon": 1e-3, "momentum": 0.8}
        yield OpCase(
            "inplace_abn", inputs, attrs, outputs,
            in_place={"Y": "X", "MeanOut": "Mean", "VarianceOut": "Variance"},
        )  # fmt: skip


@family
def further_layouts(draw: Draw) -> Iterator[OpCase]:
    x = draw.floats(3, 4, 5)
    for shape, offsets in (([2, 2, 3], [1, 0, 2]), ([-1, 2, -1], [1, 1, 0]), ([3, 4, 5], [0] * 3)):
        attrs = {"shape": shape, "offsets": offsets}
        yield OpCase("crop_tensor", {"X": x}, attrs, grads="X")
    inputs = {
        "X": x,
        "Shape": np.array([2, 1, 3], "int32"),
        "Offsets": np.array([0, 2, 1], "int32"),
    }
    yield OpCase("crop_tensor", inputs, grads="X")
    inputs = {"X": x, "ShapeTensor": [np.array([n], "int32") for n in (1, 2, 5)]}
    inputs["OffsetsTensor"] = [np.array([n], "int32") for n in (2, 1, 0)]
    yield OpCase("crop_tensor", inputs, {"shape": [-1, -1, -1], "offsets": [-1] * 3}, grads="X")
    for dtype in (2, 3, 5):
        ids = draw.ints(4, 5, 1), [[2, 3]]
        yield OpCase("one_hot", {"X": ids}, {"depth": 4, "dtype": dtype})
    beyond = {"X": np.array([[0], [7], [2]])}
    yield OpCase("one_hot", beyond, {"depth": 4, "dtype": 5, "allow_out_of_range": True})
    yield OpCase("one_hot_v2", {"X": beyond["X"][:, 0]}, {"depth": 9, "dtype": 5})
    tensor = {"X": draw.ints(3, 4, 1), "depth_tensor": np.array([3], "int32")}
    yield OpCase("one_hot", tensor, {"dtype": 5})
    for dtype in (2, 3, 5, 6):
        attrs = {"shape": [2, 3], "dtype": dtype, "value": [1.0, 2.0, 3.0, -4.0, 5.0, 6.0]}
        yield OpCase("fill", {}, attrs)
        yield OpCase("fill_zeros_like2", {"X": x}, {"dtype": dtype})
    for dims in ([0], [-1], [0, 2], [1, -1]):
        yield OpCase("flip", {"X": x}, {"dims": dims}, grads="X")
    yield OpCase("seed", {}, {"seed": 17})
