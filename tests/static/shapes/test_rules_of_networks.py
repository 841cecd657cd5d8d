"""The shape rules of convolutions, poolings and losses give what running the ops would."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fleetx.static import Program
from fleetx.static.errors import ShapeError
from fleetx.static.shapes.infer_shape import infer_by_running

CONV: tuple[dict[str, Any], ...] = (
    {},
    {"strides": [2, 3], "paddings": [1, 2]},
    {"groups": 2},
    {"dilations": [2, 1]},
)
POOL: tuple[dict[str, Any], ...] = (
    {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 1]},
    {"ksize": [2, 2], "strides": [2, 2], "ceil_mode": True},
    {"ksize": [3, 2], "adaptive": True},
    {"ksize": [3, 2], "global_pooling": True},
    {"ksize": [2, 2], "data_format": "NHWC"},
    {"ksize": [2, 2], "padding_algorithm": "SAME"},
)
IMAGES = ((2, 4, 7, 6), (-1, 4, -1, 6), (-1, 4, -1, -1))
CASES: list[tuple[str, dict[str, Any], list[str], dict[str, Any]]] = [
    *(
        (kind, {"Input": x, "Filter": (6, 4 // attrs.get("groups", 1), 3, 2)}, ["Output"], attrs)
        for kind, x, attrs in itertools.product(("conv2d", "depthwise_conv2d"), IMAGES, CONV)
    ),
    *(
        ("pool2d", {"X": x}, ["Out"], {"pooling_type": kind, **attrs})
        for kind, x, attrs in itertools.product(("max", "avg"), IMAGES, POOL)
    ),
    ("conv3d", {"Input": (-1, 2, 5, 5, -1), "Filter": (3, 2, 3, 1, 2)}, ["Output"], {}),
    *(("softmax", {"X": (-1, 3, 4)}, ["Out"], {"axis": axis}) for axis in (-1, 0, 1)),
    *(
        (kind, {scores: (*rows, 5), "Label": (*rows, *last)}, outputs, {})
        for kind, scores, outputs in (
            ("cross_entropy2", "X", ["Y", "XShape", "MatchX"]),
            ("softmax_with_cross_entropy", "Logits", ["Softmax", "Loss"]),
        )
        for rows in ((3,), (-1,), (2, -1))
        for last in ((1,), ())
    ),
]


@pytest.mark.parametrize(("kind", "inputs", "outputs", "attrs"), CASES)
def test_a_rule_gives_what_running_gives(
    kind: str, inputs: dict[str, Any], outputs: list[str], attrs: dict[str, Any]
) -> None:
    found = []
    for again in (False, True):
        block = Program().global_block()
        for name, shape in inputs.items():
            block.create_var(
                name=name, shape=shape, dtype="int64" if name == "Label" else "float32"
            )
        for name in outputs:
            block.create_var(name=name)
        named = {n: [n] for n in inputs}, {n: [n] for n in outputs}
        op = block.append_op(kind, *named, attrs)
        if again:
            for name in outputs:
                block.var(name).set_inferred((), None)  # type: ignore[arg-type]
            infer_by_running(op, block)
        found.append([(block.var(name).shape, block.var(name).dtype) for name in outputs])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("kind", "shapes", "attrs", "reason"),
    [
        ("conv2d", {"Input": (2, 4, 6, 5), "Filter": (6, 3, 3, 3)}, {}, "channel"),
        ("conv2d", {"Input": (2, 4, 2, 5), "Filter": (6, 4, 3, 3)}, {}, "Kernel size"),
        ("conv2d", {"Input": (-1, 4, 6, 5), "Filter": (6, 4, 3, 8)}, {}, "Kernel size"),
        ("pool2d", {"X": (2, 3, 2, 2)}, {"ksize": [3, 3], "pooling_type": "max"}, "small"),
    ],
)
def test_what_does_not_fit_is_refused(
    kind: str, shapes: dict[str, Any], attrs: dict[str, Any], reason: str
) -> None:
    block = Program().global_block()
    for name, shape in shapes.items():
        block.create_var(name=name, shape=shape, dtype="float32")
    output = "Output" if "Input" in shapes else "Out"
    block.create_var(name=output)
    with pytest.raises(ShapeError, match=f"{kind!r} does not accept .*{reason}"):
        block.append_op(kind, {n: [n] for n in shapes}, {output: [output]}, attrs)
