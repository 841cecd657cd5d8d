"""Settings and shapes that an op refuses when it is put into a program, as Paddle's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_check import OpProgram

from fleetx.static.errors import ShapeError

FLAT, FOUR = np.ones((3, 4), "float32"), np.ones((2, 3, 6, 6), "float32")
BOXES = {"PriorBox": FLAT, "TargetBox": FLAT}
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("top_k", {"X": FLAT}, {"k": 0}, "k is 0"),
    ("one_hot", {"X": np.zeros((3, 1), "int64")}, {"depth": -1}, "depth is -1"),
    ("increment", {"X": FLAT}, {}, "one element"),
    ("clip", {"X": FLAT}, {"min": 1.0, "max": 0.0}, "max is 0.0"),
    ("clip_by_norm", {"X": FLAT}, {"max_norm": -1.0}, "must be positive"),
    ("layer_norm", {"X": FLAT}, {"epsilon": -1.0}, "between 0 and 0.001"),
    ("layer_norm", {"X": FLAT}, {"epsilon": 0.01}, "between 0 and 0.001"),
    ("lrn", {"X": FOUR}, {"n": 4}, "must be odd"),
    ("pad", {"X": FLAT}, {"paddings": [1, 1]}, "two numbers per dimension"),
    ("pad2d", {"X": FLAT}, {"paddings": [1, 1, 1, 1]}, "4 dimensions"),
    ("diag", {"Diagonal": FLAT}, {}, "1 dimension"),
    ("temporal_shift", {"X": FOUR}, {"shift_ratio": 0.9}, "shift_ratio is 0.9"),
    (
        "prior_box",
        {"Input": FOUR, "Image": FOUR},
        {"min_sizes": [4.0], "max_sizes": [5.0, 6.0]},
        "as many",
    ),
    (
        "prior_box",
        {"Input": FOUR, "Image": FOUR},
        {"min_sizes": [4.0], "max_sizes": [3.0]},
        "greater",
    ),
    ("box_coder", BOXES, {"code_type": "decode"}, "'decode'"),
    ("box_coder", BOXES, {"variance": [0.1, 0.2]}, "2 numbers"),
    ("smooth_l1_loss", {"X": FLAT, "Y": np.ones(4, "float32")}, {}, "one shape"),
    ("cross_entropy", {"X": FLAT, "Label": np.zeros((3, 4), "int64")}, {}, "must be 1"),
    (
        "cross_entropy",
        {"X": FLAT, "Label": np.ones((3, 1), "float32")},
        {"soft_label": True},
        "one share per class",
    ),
]


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "reason"), CASES, ids=[f"{row[0]}-{row[3]}" for row in CASES]
)
def test_refused(name: str, inputs: dict[str, Any], attrs: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        OpProgram(name, inputs, attrs, {})
