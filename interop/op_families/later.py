"""Cases of ops that Paddle 1.8.5 does not have, for comparison with 2.6.2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from op_cases import Draw, OpCase, later_family, settings

# Type: the range of X (default -1 to 1) and attributes. X has three dimensions.
_UNARY: dict[str, tuple[tuple[float, float], list[dict[str, Any]]]] = {
    **{name: ((-0.9, 0.9), [{}]) for name in ("asinh", "atanh", "cosh", "sinh", "tan", "erfinv")},
    **{name: ((-2.0, 2.0), [{}]) for name in ("expm1", "silu", "trunc", "share_data")},
    **{name: ((0.3, 4.0), [{}]) for name in ("digamma", "lgamma", "log10", "log2")},
    "acosh": ((1.2, 4.0), [{}]),
    "celu": ((-2.0, 2.0), [{"alpha": 0.7}, {"alpha": -0.4}]),
    "logit": ((0.05, 0.95), [{"eps": 1e-6}, {"eps": 0.2}]),
    "cumprod": ((0.2, 2.0), [{"dim": d} for d in (0, 1, -1)]),
    "log_softmax": ((-2.0, 2.0), [{"axis": a} for a in (0, 1, -1)]),
    "logcumsumexp": (
        (-2.0, 2.0),
        list(settings(axis=[0, -1], exclusive=[False, True], reverse=[False, True])),
    ),
    "logsumexp": (
        (-2.0, 2.0),
        [
            *settings(axis=[[0], [-1], [0, 2]], keepdim=[False, True], reduce_all=[False]),
            {"axis": [0], "reduce_all": True},
        ],
    ),
    "tile": ((-1.0, 1.0), [{"repeat_times": r} for r in ([2, 1, 3], [2], [2, 1, 1, 3])]),
    "expand_v2": ((-1.0, 1.0), [{"shape": s} for s in ([3, 2, 5], [2, 3, 2, 5], [4, -1, 2, -1])]),
    "flatten_contiguous_range": (
        (-1.0, 1.0),
        [{"start_axis": a, "stop_axis": b} for a, b in ((0, 1), (1, 2), (-2, -1), (0, -1))],
    ),
    "diagonal": (
        (-1.0, 1.0),
        [{"offset": o, "axis1": a, "axis2": b} for o, a, b in ((0, 0, 1), (1, 2, 0), (-1, -1, 1))],
    ),
    "flip": ((-1.0, 1.0), [{"axis": a} for a in ([0], [-1], [0, 2])]),
    "reduce_amax": ((-1.0, 1.0), list(settings(dim=[[0], [-1, 0]], keep_dim=[False, True]))),
    "reduce_amin": (
        (-1.0, 1.0),
        [{"dim": [1], "keep_dim": True}, {"reduce_all": True, "dim": [0, 1, 2]}],
    ),
}
_SLOTS = {"diagonal": "Input"}
_OUTPUTS = {"flatten_contiguous_range": "Out XShape"}


@later_family
def later_unary_ops(draw: Draw) -> Iterator[OpCase]:
    for name, ((low, high), listed) in _UNARY.items():
        slot = _SLOTS.get(name, "X")
        for attrs in listed:
            x = draw.floats(3, 2, 5, low=low, high=high)
            grads = "" if name in ("trunc", "share_data") else slot
            why = (
                "the logarithm of an empty sum is the least float" if attrs.get("exclusive") else ""
            )
            yield OpCase(name, {slot: x}, attrs, _OUTPUTS.get(name, "Out"), grads, differs=why)
    odd = np.array([[1.5, np.inf, -np.inf], [np.nan, 0.0, -2.5]], draw.dtype)
    for name in ("isfinite_v2", "isinf_v2", "isnan_v2"):
        yield OpCase(name, {"X": odd})
    for name in ("real", "imag", "conj"):
        x = draw.floats(3, 2) + 1j * draw.floats(3, 2)
        yield OpCase(
            name, {"X": x.astype("complex128" if draw.dtype == "float64" else "complex64")}
        )
    for dtype in ("bool", "int32", "int64"):
        x, y = (draw.ints(2 if dtype == "bool" else 90, 3, 5).astype(dtype) for _ in range(2))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            yield OpCase(name, {"X": x, "Y": y})
        yield OpCase("bitwise_not", {"X": x})


@later_family
def later_pairs(draw: Draw) -> Iterator[OpCase]:
    for shape in ((3, 2, 5), (2, 1), (5,)):
        x, y = draw.apart(3, 2, 5), draw.apart(*shape)
        for name in ("elementwise_fmax", "elementwise_fmin"):
            yield OpCase(name, {"X": x, "Y": y}, {"axis": -1}, grads="X Y")
        signs = np.sign(x).astype(draw.dtype)
        yield OpCase("elementwise_heaviside", {"X": signs, "Y": y}, {"axis": -1})
        inputs = {"X": x, "Y": draw.floats(*shape), "Weight": draw.floats(1)}
        yield OpCase("lerp", inputs, grads="X Y")
    yield OpCase("atan2", {"X1": draw.apart(3, 5), "X2": draw.apart(3, 5)}, grads="X1 X2")
    x = draw.floats(3, 5)
    for y in (x, x + 1e-6, np.where(x > 0, np.nan, x)):
        pair = {"Input": y.astype(draw.dtype), "Other": x}
        yield OpCase("isclose", pair, {"rtol": "1e-5", "atol": "1e-8", "equal_nan": True})
        yield OpCase("equal_all", {"X": x, "Y": y.astype(draw.dtype)})
    parts = [draw.floats(3, 1), draw.floats(1, 2), draw.floats(2)]
    yield OpCase("broadcast_tensors", {"X": parts}, grads="X", counts={"Out": 3})
    inputs = {"X": draw.floats(2, 1), "Y": draw.floats(3, 2, 4)}
    yield OpCase("expand_as_v2", inputs, {"target_shape": [3, 2, 4]}, grads="X")
    mask = draw.ints(2, 3, 5) > 0
    yield OpCase("masked_select", {"X": x, "Mask": mask}, {}, "Y", "X")
    for axis in (0, 1):  # Paddle crashes with a negative one
        index = draw.ints(3, 3, 4)
        yield OpCase("take_along_axis", {"Input": draw.floats(3, 4), "Index": index},
                     {"Axis": axis}, "Result", "Input")  # fmt: skip
        index = draw.random.permutation(3)[(np.arange(3) + np.arange(3)[:, None]) % 3]
        for reduce in ("assign", "add", "multiply"):
            inputs = {"Input": draw.floats(3, 3), "Index": index, "Value": draw.floats(3, 3)}
            grads = "Input Value" if reduce != "multiply" else ""
            attrs = {"Axis": axis, "Reduce": reduce}
            yield OpCase("put_along_axis", inputs, attrs, "Result", grads)
        inputs = {"X": draw.floats(3, 3), "Index": np.array([2, 0, 2])}
        inputs["AddValue"] = draw.floats(3, 3)
        yield OpCase("index_add", inputs, {"axis": axis}, grads="X AddValue")
    for right, small in ((False, False), (True, True)):
        inputs = {"SortedSequence": np.sort(draw.floats(2, 7), 1), "Values": draw.floats(2, 3)}
        yield OpCase("searchsorted", inputs, {"right": right, "out_int32": small})


@later_family
def later_matrices(draw: Draw) -> Iterator[OpCase]:
    for left, right, flip_x, flip_y in (
        ((3, 5), (5, 1), False, False), ((5, 3), (7, 5), True, True), ((5,), (5,), False, False),
        ((2, 3, 5), (5, 4), False, False), ((4, 1, 3, 5), (2, 5, 3), False, False),
        ((5,), (2, 5, 3), False, False), ((2, 3, 5), (5,), False, False),
    ):  # fmt: skip
        inputs = {"X": draw.floats(*left), "Y": draw.floats(*right)}
        yield OpCase("matmul_v2", inputs, {"trans_x": flip_x, "trans_y": flip_y}, grads="X Y")
    yield OpCase("mv", {"X": draw.floats(3, 5), "Vec": draw.floats(5)}, grads="X Vec")
    square = draw.floats(2, 3, 3) + 3 * np.eye(3, dtype=draw.dtype)
    good = (square @ square.transpose(0, 2, 1)).astype(draw.dtype)
    yield OpCase("determinant", {"Input": square}, grads="Input")
    yield OpCase("inverse", {"Input": square}, {}, "Output", "Input")
    yield OpCase("solve", {"X": square, "Y": draw.floats(2, 3, 2)}, grads="X Y")
    for upper in (False, True):
        yield OpCase("cholesky", {"X": good}, {"upper": upper}, grads="X")
    for power in (-2, 0, 1, 3):
        yield OpCase("matrix_power", {"X": square}, {"n": power}, grads="X")
    for equation, shapes in (
        ("ij,jk->ik", ((3, 4), (4, 2))),
        ("bij,bjk->bk", ((2, 3, 4), (2, 4, 5))),
        ("i,j->ij", ((3,), (4,))),
        ("...i,i->...", ((2, 3, 4), (4,))),
    ):
        parts = [draw.floats(*shape) for shape in shapes]
        yield OpCase(
            "einsum", {"Operands": parts}, {"equation": equation}, "Out InnerCache XShape",
            "Operands", "Out", counts={"InnerCache": 2, "XShape": 2}, hidden="InnerCache",
        )  # fmt: skip
    for offset in (-1, 0, 2):
        attrs = {"offset": offset, "padding_value": 0.5}
        yield OpCase("diag_v2", {"X": draw.floats(3)}, attrs)
        yield OpCase("diag_v2", {"X": draw.floats(3, 4)}, {"offset": offset}, grads="X")


@later_family
def later_layouts(draw: Draw) -> Iterator[OpCase]:
    for attrs in settings(k=[1, 3], axis=[0, 1, -1], largest=[True, False]):
        x = draw.apart(4, 3)
        yield OpCase("top_k_v2", {"X": x}, {**attrs, "sorted": True}, "Out Indices", "X", "Out")
    for attrs in settings(k=[1, 3], axis=[0, -1], keepdim=[False, True]):
        yield OpCase("kthvalue", {"X": draw.apart(4, 3)}, attrs, "Out Indices", "X", "Out")
    for attrs in settings(bins=[1, 5], min=[0, -1], max=[0, 2]):
        if attrs["min"] <= attrs["max"]:
            yield OpCase("histogram", {"X": draw.apart(4, 3)}, attrs)
    for layout in ("NCHW", "NHWC"):
        four = {"X": draw.floats(2, 4, 4, 4)}
        attrs = {"downscale_factor": 2, "data_format": layout}
        yield OpCase("pixel_unshuffle", four, attrs, grads="X")
        yield OpCase("channel_shuffle", four, {"groups": 2, "data_format": layout}, grads="X")
    for mode in ("constant", "reflect", "replicate", "circular"):
        for layout in ("NCDHW", "NDHWC"):
            attrs = {"paddings": [1, 0, 2, 1, 0, 1], "mode": mode, "value": 0.5}
            x = {"X": draw.floats(2, 3, 4, 5, 3)}
            yield OpCase("pad3d", x, {**attrs, "data_format": layout}, grads="X")
    attrs = {"output_sizes": [4, 5], "kernel_sizes": [2, 3], "strides": [2, 1]}
    attrs |= {"paddings": [0, 1, 0, 1], "dilations": [1, 1]}
    yield OpCase("fold", {"X": draw.floats(2, 12, 10)}, attrs, "Y", "X")
    for axes, starts, ends, steps, drop in (
        ([0], [1], [3], [1], []),
        ([0, 1], [0, 2], [4, -1], [2, 1], []),
        ([1], [-2], [-1], [1], [1]),
    ):
        attrs = {"axes": axes, "starts": starts, "ends": ends, "steps": steps}
        attrs |= {"decrease_axes": drop, "dtype": 6 if draw.dtype == "float64" else 5}
        x = {"Input": draw.floats(4, 5), "ValueTensor": draw.floats(1)}
        yield OpCase("set_value", x, attrs, grads="Input ValueTensor")
    for corners in (True, False):
        inputs = {"Theta": draw.floats(2, 2, 3)}
        attrs = {"output_shape": [2, 3, 4, 5], "align_corners": corners}
        yield OpCase("affine_grid", inputs, attrs, "Output", "Theta")


@later_family
def later_sizes_of_images(draw: Draw) -> Iterator[OpCase]:
    kinds = (("linear", 1), ("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("trilinear", 3))
    for (kind, rank), corners, mode in (
        (kind, corners, mode) for kind in kinds for corners in (True, False) for mode in (0, 1)
    ):
        attrs = {"interp_method": kind, "align_corners": corners, "align_mode": mode}
        attrs["data_layout"] = "NCHW"
        names = (("out_w",), ("out_h", "out_w"), ("out_d", "out_h", "out_w"))[rank - 1]
        x = {"X": draw.floats(2, 1, *(5, 3, 4)[:rank])}
        sizes = dict(zip(names, (7, 3, 6), strict=False))
        yield OpCase(f"{kind}_interp_v2", x, {**attrs, **sizes}, grads="X")
        more = {**attrs, **dict.fromkeys(names, -1), "scale": [1.5, 2.0, 0.7][:rank]}
        yield OpCase(f"{kind}_interp_v2", x, more, grads="X")
        if kind == "linear":
            yield OpCase("linear_interp", x, {**attrs, **sizes}, grads="X")


@later_family
def later_updates(draw: Draw) -> Iterator[OpCase]:
    for attrs in settings(with_decay=[True, False], coeff=[0.0, 0.1], lr_ratio=[1.0, 0.5]):
        inputs = {"Param": draw.floats(3, 5), "Grad": draw.floats(3, 5)}
        inputs |= {"Moment1": draw.floats(3, 5), "Moment2": draw.floats(3, 5, low=0.1)}
        inputs |= {s: draw.floats(1, low=0.5, high=0.9) for s in ("Beta1Pow", "Beta2Pow")}
        inputs["LearningRate"] = draw.floats(1, low=0.01)
        outputs = {f"{s}Out": s for s in ("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")}
        attrs |= {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6}
        why = "lr_ratio is ignored on CPUs" if attrs["lr_ratio"] != 1 else ""
        yield OpCase("adamw", inputs, attrs, " ".join(outputs), in_place=outputs, differs=why)
    bad = draw.floats(3)
    bad[1] = np.inf
    for grads in ([draw.floats(3), draw.floats(2)], [bad, draw.floats(2)]):
        inputs = {"X": grads, "Scale": np.array([8.0], draw.dtype)}
        yield OpCase(
            "check_finite_and_unscale", inputs, {}, "Out FoundInfinite",
            counts={"Out": 2}, in_place={"Out": "X"}, hidden="Out" if grads[0] is bad else "",
        )  # fmt: skip
    for found in (False, True):
        for good, wrong in ((0, 0), (2, 1)):
            inputs = {"X": [draw.floats(3)], "FoundInfinite": np.array([found])}
            inputs |= {"PrevLossScaling": np.array([8.0], draw.dtype)}
            inputs |= {"InGoodSteps": np.array([good], "int32")}
            inputs |= {"InBadSteps": np.array([wrong], "int32")}
            places = {"Out": "X", "LossScaling": "PrevLossScaling"}
            places |= {"OutGoodSteps": "InGoodSteps", "OutBadSteps": "InBadSteps"}
            attrs = {"incr_every_n_steps": 3, "decr_every_n_nan_or_inf": 2}
            attrs |= {"incr_ratio": 2.0, "decr_ratio": 0.5}
            name = "update_loss_scaling"
            yield OpCase(name, inputs, attrs, " ".join(places), in_place=places)
    shares = np.tile(np.array([[0.1, 0.2, 0.7]], draw.dtype), (5353, 1))
    yield OpCase("bernoulli", {"X": shares}, {}, random=True)
    attrs = {"num_samples": 1, "replacement": True}
    yield OpCase("multinomial", {"X": shares}, attrs, random=True)
    attrs = {"dropout_prob": 0.3, "axis": [0], "fix_seed": True, "seed": 3}
    attrs["dropout_implementation"] = "upscale_in_train"
    x = {"X": np.ones((5353, 3), draw.dtype)}
    yield OpCase("dropout_nd", x, attrs, "Out Mask", hidden="Mask", random=True)
