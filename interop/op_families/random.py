"""Cases of random ops: the numbers differ between the engines, their distribution does not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_cases import Draw, OpCase, family, settings

_SHAPE = [53, 101]


@family
def random_numbers(draw: Draw) -> Iterator[OpCase]:
    number = 6 if draw.dtype == "float64" else 5
    like = {"input_dim_idx": 1, "output_dim_idx": 0}
    batch = {"Input": draw.floats(2, 53)}
    for seed in (0, 7):
        uniform = {"min": -2.0, "max": 0.5, "seed": seed, "dtype": number}
        normal = {"mean": 1.5, "std": 0.3, "seed": seed, "dtype": number}
        for name, attrs in (("uniform_random", uniform), ("gaussian_random", normal)):
            yield OpCase(name, {}, {**attrs, "shape": _SHAPE}, random=True)
            more = {**attrs, "shape": [-1, 101], **like}
            yield OpCase(f"{name}_batch_size_like", batch, more, random=True)
            shape = {"ShapeTensor": np.array(_SHAPE, "int32")}
            yield OpCase(name, shape, {**attrs, "shape": [1]}, random=True)
            parts = {"ShapeTensorList": [np.array([n], "int32") for n in _SHAPE]}
            yield OpCase(name, parts, {**attrs, "shape": [-1, -1]}, random=True)
        attrs = {**normal, "shape": _SHAPE}
        yield OpCase("truncated_gaussian_random", {}, attrs, random=True)
        for low, high, dtype in ((0, 9, 3), (-5, 2, 2)):
            attrs = {"shape": _SHAPE, "low": low, "high": high, "dtype": dtype, "seed": seed}
            yield OpCase("randint", {}, attrs, random=True)
        for dtype in (2, 3):
            attrs = {"n": 5353, "dtype": dtype, "seed": seed}
            yield OpCase("randperm", {}, attrs, random=True)
        diagonal = {"diag_num": 53, "diag_step": 1, "diag_val": 9.0}
        yield OpCase("uniform_random", {}, {**uniform, **diagonal, "shape": [53, 53]}, random=True)
    shares = np.tile(np.array([[0.1, 0.2, 0.7]], draw.dtype), (5353, 1))
    yield OpCase("sampling_id", {"X": shares}, {"seed": 3}, random=True)
    x = np.ones((53, 101), draw.dtype)
    for attrs in settings(
        dropout_implementation=["downgrade_in_infer", "upscale_in_train"],
        dropout_prob=[0.0, 0.3, 1.0], is_test=[False, True],
    ):  # fmt: skip
        attrs |= {"fix_seed": True, "seed": 5}
        hidden = "Mask" if attrs["is_test"] else ""
        yield OpCase("dropout", {"X": x}, attrs, "Out Mask", hidden=hidden, random=True)
    attrs = {"clip": 10.0, "batch_size": 16.0, "sigma": 0.0, "seed": 3}
    inputs = {"Param": draw.floats(3, 5), "Grad": draw.floats(3, 5) * 20}
    inputs["LearningRate"] = draw.floats(1, low=0.1)
    yield OpCase("dpsgd", inputs, attrs, "ParamOut")
    for shape in ([2, 3], [4, 1], [4, 4]):
        inputs = {"X": np.ones((5353, 4, 4), draw.dtype), "Seed": np.array([11])}
        inputs["X"] = (inputs["X"] * np.arange(16).reshape(4, 4)).astype(draw.dtype)
        attrs = {"shape": shape, "startup_seed": 7}
        yield OpCase("random_crop", inputs, attrs, "Out SeedOut", hidden="SeedOut", random=True)
