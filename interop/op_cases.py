"""Cases of single ops for both engines: inputs, attributes and outputs, drawn with a seed.

A family is a function of a `Draw` that yields cases. Sizes are odd or 1, axes positive and
negative, element types float32 and float64; sequence ops get lengths of sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Rows:
    """Rows of a sparse gradient (`SelectedRows`): their numbers, of how many, and their values."""

    rows: list[int]
    height: int
    values: np.ndarray


@dataclass
class OpCase:
    """One op with values by slot: arrays, pairs of array and lengths, `Rows`, or lists of those."""

    type: str
    inputs: dict[str, Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: str = "Out"
    grads: str = ""  # input slots
    losses: str = ""  # output slots that gradients start from; all compared ones if empty
    counts: dict[str, int] = field(default_factory=dict)
    hidden: str = ""  # output slots that this setting leaves undefined
    in_place: dict[str, str] = field(default_factory=dict)  # output slot: the input it is
    sparse: str = ""  # output slots that hold rows
    differs: str = ""  # why Paddle's result is another one; the case is run all the same
    random: bool = False  # outputs have the same distribution, not the same numbers

    def __post_init__(self) -> None:
        """Copy the inputs, which a family may go on to change."""
        self.inputs = dict(self.inputs)


class Draw:
    """Random sizes and arrays."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.RandomState(seed)
        self.dtype = "float32"

    def size(self) -> int:
        return int(self.random.choice([1, 2, 3, 5, 7]))

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(rank))

    def floats(self, *shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        return self.random.uniform(low, high, shape).astype(self.dtype)

    def apart(self, *shape: int) -> np.ndarray:
        """Values that differ from each other and from 0 by more than differences in rounding."""
        count = int(np.prod(shape))
        values = (self.random.permutation(count) + 1 - count // 2 - 0.37) / max(count, 1)
        return (values * 3).reshape(shape).astype(self.dtype)

    def ints(self, high: int, *shape: int, dtype: str = "int64") -> np.ndarray:
        return self.random.randint(0, high, shape).astype(dtype)

    def lengths(self, count: int = 3) -> list[int]:
        return [int(self.random.randint(1, 5)) for _ in range(count)]

    def sequence(self, *shape: int) -> tuple[np.ndarray, list[list[int]]]:
        lengths = self.lengths()
        return self.apart(sum(lengths), *shape), [lengths]

    def boxes(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        low = self.random.uniform(0, 0.6, (*shape, 2))
        high = low + self.random.uniform(0.05, 0.4, (*shape, 2))
        return (np.concatenate([low, high], -1) * scale).astype(self.dtype)


def settings(**choices: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the attributes' values."""
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


Family = Callable[[Draw], Iterator[OpCase]]
FAMILIES: dict[str, Family] = {}
LATER: dict[str, Family] = {}  # of ops that only Paddle 2.x has


def family(function: Family) -> Family:
    """Register a family under the name of its function."""
    FAMILIES[function.__name__] = function
    return function


def later_family(function: Family) -> Family:
    """Register a family of ops that only Paddle 2.x has."""
    LATER[function.__name__] = function
    return function


_PLAIN = (
    "abs ceil cos exp floor gelu leaky_relu logsigmoid relu relu6 round sigmoid sin softplus "
    "softsign square swish tanh tanh_shrink brelu elu hard_shrink hard_sigmoid hard_swish mish "
    "selu softshrink stanh soft_relu thresholded_relu atan asin acos"
)


@family
def activations(draw: Draw) -> Iterator[OpCase]:
    for name in _PLAIN.split():
        x = draw.apart(*draw.shape(3)) * (0.3 if name in ("asin", "acos") else 1.0)
        yield OpCase(name, {"X": x.astype(draw.dtype)}, grads="X")
    for name in ("log", "rsqrt", "sqrt", "reciprocal", "log1p"):
        yield OpCase(name, {"X": draw.floats(*draw.shape(2), low=0.2, high=3)}, grads="X")
    x = draw.floats(*draw.shape(2), low=0.2, high=3)
    yield OpCase("pow", {"X": x}, {"factor": 1.7}, grads="X")
    yield OpCase(
        "scale", {"X": x}, {"scale": 2.0, "bias": 0.3, "bias_after_scale": False}, grads="X"
    )
    yield OpCase("clip", {"X": draw.apart(3, 5)}, {"min": -0.4, "max": 0.5}, grads="X")


@family
def elementwise(draw: Draw) -> Iterator[OpCase]:
    for kind in ("add", "sub", "mul", "div", "max", "min", "pow"):
        shape = draw.shape(4)
        for axis, part in (
            (-1, shape),
            (-1, shape[-1:]),
            (1, shape[1:3]),
            (0, shape[:1]),
            (2, shape[2:]),
        ):
            low = 0.3 if kind in ("div", "pow") else -1.0
            x = draw.floats(*shape, low=low, high=2)
            y = draw.floats(*part, low=low, high=2)
            # where both are 1 in all dimensions, which one is broadcast does not matter
            yield OpCase(f"elementwise_{kind}", {"X": x, "Y": y}, {"axis": axis}, grads="X Y")
    for kind in ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"):
        x, y = draw.ints(3, 3, 5), draw.ints(3, 3, 5)
        yield OpCase(kind, {"X": x, "Y": y}, {"axis": -1})
    for kind in ("logical_and", "logical_or", "logical_xor"):
        yield OpCase(kind, {"X": draw.ints(2, 7) > 0, "Y": draw.ints(2, 7) > 0})


@family
def reductions(draw: Draw) -> Iterator[OpCase]:
    for kind in ("sum", "mean", "max", "min", "prod"):
        for dims in ([0], [-1], [1, 2], [-2, 0]):
            for keep in (False, True):
                x = draw.apart(*draw.shape(3))
                attrs = {"dim": dims, "keep_dim": keep, "reduce_all": False}
                yield OpCase(f"reduce_{kind}", {"X": x}, attrs, grads="X")
        attrs = {"reduce_all": True, "dim": [0], "keep_dim": False}
        yield OpCase(f"reduce_{kind}", {"X": draw.apart(3, 5)}, attrs, grads="X")
    for axis in (0, 1, -1):
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                yield OpCase("cumsum", {"X": draw.floats(*draw.shape(3))}, attrs, grads="X")
        x = draw.apart(*draw.shape(3))
        yield OpCase("arg_max", {"X": x}, {"axis": axis, "dtype": 3, "keepdims": False})
        yield OpCase("argsort", {"X": x}, {"axis": axis}, "Out Indices", losses="Out")
    for k in (1, 3):
        x = draw.apart(5, 7)
        yield OpCase("top_k", {"X": x}, {"k": k}, "Out Indices", "X", "Out")
    for porder in (1.0, 2.0, 3.0):
        attrs = {"porder": porder, "axis": -1, "keepdim": True, "epsilon": 1e-12}
        yield OpCase("p_norm", {"X": draw.apart(3, 5)}, attrs)
    yield OpCase("mean", {"X": draw.floats(*draw.shape(3))}, grads="X")
    yield OpCase("squared_l2_norm", {"X": draw.floats(3, 5)}, grads="X")
    yield OpCase("clip_by_norm", {"X": draw.floats(3, 5)}, {"max_norm": 0.7})


@family
def layout(draw: Draw) -> Iterator[OpCase]:
    x = draw.floats(2, 3, 5, 1)
    yield OpCase("transpose2", {"X": x}, {"axis": [2, 0, 3, 1]}, "Out XShape", "X")
    yield OpCase("reshape2", {"X": x}, {"shape": [0, -1, 1]}, "Out XShape", "X")
    yield OpCase("squeeze2", {"X": x}, {"axes": [-1]}, "Out XShape", "X")
    yield OpCase("unsqueeze2", {"X": x}, {"axes": [0, -1]}, "Out XShape", "X")
    yield OpCase("flatten2", {"X": x}, {"axis": 2}, "Out XShape", "X")
    for axis in (0, 1, -1):
        parts = [draw.floats(2, 3, 5) for _ in range(3)]
        yield OpCase("concat", {"X": parts}, {"axis": axis}, grads="X")
        yield OpCase("stack", {"X": parts}, {"axis": axis}, "Y", "X")
    whole = draw.floats(6, 4)
    yield OpCase("split", {"X": whole}, {"axis": 0, "num": 3}, grads="X", counts={"Out": 3})
    attrs = {"axis": 1, "sections": [1, 3]}
    yield OpCase("split", {"X": whole}, attrs, grads="X", counts={"Out": 2})
    yield OpCase("expand", {"X": draw.floats(1, 3, 1)}, {"expand_times": [2, 1, 5]}, grads="X")
    yield OpCase("pad", {"X": whole}, {"paddings": [1, 0, 2, 3], "pad_value": 0.5}, grads="X")
    for mode in ("constant", "reflect", "edge"):
        attrs = {"paddings": [1, 2, 0, 1], "mode": mode, "pad_value": 0.3}
        yield OpCase("pad2d", {"X": draw.floats(2, 1, 5, 3)}, attrs, grads="X")
    yield OpCase("reverse", {"X": x}, {"axis": [0, -2]}, grads="X")
    yield OpCase("roll", {"X": whole}, {"shifts": [2, -3], "dims": [0, 1]}, grads="X")
    for lower in (False, True):
        attrs = {"diagonal": -1, "lower": lower}
        yield OpCase("tril_triu", {"X": draw.floats(3, 5)}, attrs, grads="X")
    attrs = {"axes": [0, 1], "starts": [-3, 1], "ends": [100, 3], "infer_flags": [1, 1]}
    yield OpCase("slice", {"Input": whole}, {**attrs, "decrease_axis": []}, grads="Input")
    attrs = {"axes": [0], "starts": [5], "ends": [-7], "strides": [-1], "infer_flags": [1]}
    yield OpCase("strided_slice", {"Input": whole}, attrs, grads="Input")
    yield OpCase("gather", {"X": whole, "Index": draw.ints(6, 5)}, {"overwrite": False}, grads="X")
    yield OpCase("gather_nd", {"X": whole, "Index": draw.ints(4, 3, 2)}, grads="X")
    inputs = {"X": whole, "Ids": np.array([1, 4]), "Updates": draw.floats(2, 4)}
    yield OpCase("scatter", inputs, {"overwrite": True}, grads="Updates")
    inputs = {"X": whole, "Index": draw.ints(4, 3, 1), "Updates": draw.floats(3, 4)}
    yield OpCase("scatter_nd_add", inputs, grads="X Updates")
    yield OpCase("cast", {"X": whole}, {"in_dtype": 5, "out_dtype": 2})
    yield OpCase("shape", {"Input": whole})
    yield OpCase("one_hot_v2", {"X": draw.ints(5, 3, 2)}, {"depth": 5, "dtype": 5})
    yield OpCase("crop", {"X": whole}, {"offsets": [1, 0], "shape": [3, 2]}, grads="X")


@family
def linear_algebra(draw: Draw) -> Iterator[OpCase]:
    for left, right, flip_x, flip_y in (
        ((3, 5), (5, 1), False, False),
        ((5, 3), (7, 5), True, True),
        ((2, 3, 5), (2, 5, 3), False, False),
        ((2, 3, 5), (5, 3), False, False),
        ((5,), (5,), False, False),
    ):
        attrs = {"transpose_X": flip_x, "transpose_Y": flip_y, "alpha": 0.5}
        inputs = {"X": draw.floats(*left), "Y": draw.floats(*right)}
        yield OpCase("matmul", inputs, attrs, grads="X Y")
    inputs = {"X": draw.floats(2, 3, 5), "Y": draw.floats(5, 2, 3)}
    yield OpCase("mul", inputs, {"x_num_col_dims": 2, "y_num_col_dims": 1}, grads="X Y")
    yield OpCase("bmm", {"X": draw.floats(2, 3, 5), "Y": draw.floats(2, 5, 1)}, grads="X Y")
    yield OpCase("dot", {"X": draw.floats(3, 5), "Y": draw.floats(3, 5)}, grads="X Y")
    inputs = {"X": draw.floats(4, 3, 2), "Y": draw.floats(1, 3, 2)}
    yield OpCase("cos_sim", inputs, {}, "Out XNorm YNorm", "X Y", "Out")
    yield OpCase("squared_l2_distance", inputs, {}, "sub_result Out", "X Y", "Out")
    inputs = {"X": draw.floats(3, 2), "Y": draw.floats(3, 4), "Weight": draw.floats(5, 2, 4)}
    yield OpCase("bilinear_tensor_product", inputs, grads="X Y Weight")
    yield OpCase("kron", {"X": draw.floats(2, 3), "Y": draw.floats(3, 1)}, grads="X Y")
    yield OpCase("trace", {"Input": draw.floats(3, 4, 2)}, {"offset": 1, "dim1": 0, "dim2": 1})


@family
def losses(draw: Draw) -> Iterator[OpCase]:
    positive = draw.floats(5, 3, low=0.1, high=0.9)
    label = draw.ints(3, 5, 1)
    inputs = {"X": positive, "Label": label}
    yield OpCase("cross_entropy", inputs, {"soft_label": False}, "Y", "X")
    yield OpCase("cross_entropy2", inputs, {"ignore_index": 1}, "Y XShape MatchX", "X", "Y")
    logits = {"Logits": draw.floats(5, 3), "Label": label}
    yield OpCase("softmax_with_cross_entropy", logits, {}, "Softmax Loss", "Logits", "Loss")
    shares = np.exp(draw.floats(2, 3, 5))
    soft = {"Logits": draw.floats(2, 3, 5), "Label": shares / shares.sum(1, keepdims=True)}
    attrs = {"soft_label": True, "axis": 1}
    yield OpCase("softmax_with_cross_entropy", soft, attrs, "Softmax Loss", "Logits", "Loss")
    binary = {"X": draw.floats(4, 3), "Label": draw.ints(2, 4, 3).astype(draw.dtype)}
    attrs = {"normalize": True, "ignore_index": -100}
    yield OpCase("sigmoid_cross_entropy_with_logits", binary, attrs, grads="X")
    target = draw.floats(5, 3)
    pair = {"X": draw.floats(5, 3), "Y": target}
    yield OpCase("huber_loss", pair, {"delta": 0.3}, "Residual Out", "X Y", "Out")
    yield OpCase("smooth_l1_loss", pair, {"sigma": 2.0}, "Diff Out", "X Y", "Out")
    inputs = {"X": np.log(positive), "Target": positive}
    for reduction in ("none", "sum", "mean", "batchmean"):
        yield OpCase("kldiv_loss", inputs, {"reduction": reduction}, "Loss", "X")
    inputs = {"Predicted": draw.floats(5, 1, low=0.1, high=0.9), "Labels": draw.floats(5, 1)}
    yield OpCase("log_loss", inputs, {"epsilon": 1e-4}, "Loss", "Predicted")
    sides = {"Left": draw.floats(5), "Right": draw.floats(5, 1)}
    inputs = {"Label": draw.ints(2, 5, 1).astype(draw.dtype), **sides}
    yield OpCase("rank_loss", inputs, grads="Left Right")
    inputs = {"Label": draw.floats(5, 1), "X1": draw.floats(5, 1), "X2": draw.floats(5, 1)}
    yield OpCase("margin_rank_loss", inputs, {"margin": 0.1}, "Activated Out", "X1 X2", "Out")
    yield OpCase("bpr_loss", {"X": draw.floats(5, 3), "Label": label}, {}, "Y", "X")
    for axis in (-1, 1, 0):
        yield OpCase("softmax", {"X": draw.floats(2, 3, 5)}, {"axis": axis}, grads="X")
    inputs = {"X": draw.floats(5, 3), "Label": draw.ints(4, 5, 1, dtype="int32")}
    inputs["FgNum"] = np.array([2], "int32")
    yield OpCase("sigmoid_focal_loss", inputs, {"gamma": 2.0, "alpha": 0.25}, grads="X")


@family
def images(draw: Draw) -> Iterator[OpCase]:
    for stride, padding, dilation, groups in (
        ([1, 1], [0, 0], [1, 1], 1),
        ([2, 1], [1, 2], [1, 2], 2),
    ):
        inputs = {"Input": draw.floats(2, 4, 7, 5), "Filter": draw.floats(6, 4 // groups, 3, 2)}
        attrs = {"strides": stride, "paddings": padding, "dilations": dilation, "groups": groups}
        yield OpCase("conv2d", inputs, attrs, "Output", "Input Filter")
        inputs = {"Input": draw.floats(2, 4, 3, 5), "Filter": draw.floats(4, 6 // groups, 3, 2)}
        yield OpCase("conv2d_transpose", inputs, attrs, "Output", "Input Filter")
    for kind in ("max", "avg"):
        for ceil in (False, True):
            for exclusive in (False, True):
                attrs = {"pooling_type": kind, "ksize": [3, 2], "strides": [2, 2]}
                attrs |= {"paddings": [1, 0], "ceil_mode": ceil, "exclusive": exclusive}
                yield OpCase("pool2d", {"X": draw.apart(2, 3, 7, 5)}, attrs, grads="X")
    attrs = {"pooling_type": "avg", "ksize": [3, 2], "adaptive": True}
    yield OpCase("pool2d", {"X": draw.apart(2, 3, 7, 5)}, attrs, grads="X")
    attrs = {"ksize": [3, 3], "strides": [2, 2], "paddings": [2, 1]}
    x = {"X": draw.apart(2, 3, 7, 5)}
    yield OpCase("max_pool2d_with_index", x, attrs, "Out Mask", "X", "Out")
    for kind, rank in (("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("trilinear", 3)):
        for corners in (True, False):
            for mode in (0, 1):
                attrs = {"interp_method": kind, "align_corners": corners, "align_mode": mode}
                sizes = dict(zip(("out_w", "out_h", "out_d"), (7, 3, 5)[:rank], strict=False))
                x = draw.floats(2, 1, *(3, 5, 4)[:rank])
                yield OpCase(f"{kind}_interp", {"X": x}, {**attrs, **sizes}, grads="X")
                attrs |= {"scale": 1.5, **dict.fromkeys(sizes, -1)}
                yield OpCase(f"{kind}_interp", {"X": x}, attrs, grads="X")
    inputs = {"X": draw.floats(3, 2, 5), "Scale": draw.floats(10), "Bias": draw.floats(10)}
    attrs = {"begin_norm_axis": 1, "epsilon": 1e-5}
    yield OpCase("layer_norm", inputs, attrs, "Y Mean Variance", "X Scale Bias", "Y")
    inputs = {"X": draw.floats(2, 4, 3, 5), "Scale": draw.floats(4), "Bias": draw.floats(4)}
    attrs = {"groups": 2, "epsilon": 1e-5}
    yield OpCase("group_norm", inputs, attrs, "Y Mean Variance", "X Scale Bias", "Y")
    outputs = "Y SavedMean SavedVariance"
    yield OpCase("instance_norm", inputs, {"epsilon": 1e-5}, outputs, "X Scale Bias", "Y")
    yield OpCase("lrn", {"X": draw.floats(2, 7, 3, 3)}, {"n": 5}, "Out MidOut", "X", "Out")
    yield OpCase("maxout", {"X": draw.apart(2, 6, 3, 1)}, {"groups": 3}, grads="X")
    yield OpCase("pixel_shuffle", {"X": draw.floats(2, 8, 3, 1)}, {"upscale_factor": 2}, grads="X")
    yield OpCase("space_to_depth", {"X": draw.floats(2, 4, 4, 6)}, {"blocksize": 2}, grads="X")
    if draw.dtype == "float32":
        yield OpCase("shuffle_channel", {"X": draw.floats(2, 4, 3, 1)}, {"group": 2}, grads="X")
    yield OpCase(
        "temporal_shift",
        {"X": draw.floats(6, 5, 3, 1)},
        {"seg_num": 3, "shift_ratio": 0.25},
        grads="X",
    )
    grid = {"X": draw.floats(2, 3, 5, 4), "Grid": draw.floats(2, 5, 4, 2) * 0.9}
    yield OpCase("grid_sampler", grid, {}, "Output", "X Grid")
    attrs = {"strides": [1, 2], "paddings": [1, 1], "dilations": [1, 1], "groups": 1}
    attrs |= {"deformable_groups": 1, "im2col_step": 1}
    inputs = {"Input": draw.floats(2, 4, 5, 7), "Offset": draw.floats(2, 18, 5, 4)}
    inputs |= {"Mask": draw.floats(2, 9, 5, 4, low=0), "Filter": draw.floats(2, 4, 3, 3)}
    yield OpCase("deformable_conv", inputs, attrs, "Output", "Input Offset Mask Filter")


@family
def sequences(draw: Draw) -> Iterator[OpCase]:
    x = draw.sequence(3)
    for kind in ("SUM", "AVERAGE", "SQRT", "MAX", "LAST", "FIRST"):
        yield OpCase("sequence_pool", {"X": x}, {"pooltype": kind}, "Out MaxIndex", "X", "Out")
    yield OpCase("sequence_softmax", {"X": draw.sequence(1)}, grads="X")
    yield OpCase("sequence_reverse", {"X": x}, {}, "Y", "X")
    rows = (draw.floats(3, 2), [[1, 1, 1]])
    yield OpCase("sequence_expand", {"X": rows, "Y": x}, {"ref_level": 0}, grads="X")
    yield OpCase("sequence_expand_as", {"X": draw.floats(3, 2), "Y": x}, grads="X")
    yield OpCase("sequence_concat", {"X": [x, draw.sequence(3)]}, grads="X")
    attrs = {"contextStart": -1, "contextLength": 3, "contextStride": 1}
    inputs = {"X": x, "Filter": draw.floats(9, 2)}
    yield OpCase("sequence_conv", inputs, attrs, grads="X Filter")
    inputs = {"X": x, "PadValue": draw.floats(1)}
    yield OpCase("sequence_pad", inputs, {"padded_length": -1}, "Out Length", "X", "Out")
    yield OpCase(
        "sequence_reshape", {"X": (draw.floats(4, 6), [[1, 3]])}, {"new_dim": 3}, grads="X"
    )
    yield OpCase("concat", {"X": [x, x]}, {"axis": 0}, grads="X")
    ids = (draw.ints(9, 5, 1), [[2, 3]])
    yield OpCase("sequence_enumerate", {"X": ids}, {"win_size": 2, "pad_value": 0})
    yield OpCase(
        "lookup_table", {"W": draw.floats(9, 4), "Ids": ids}, {"padding_idx": 3}, grads="W"
    )
    yield OpCase(
        "add_position_encoding", {"X": draw.sequence(6)}, {"alpha": 0.5, "beta": 2.0}, grads="X"
    )
    emission = draw.sequence(3)
    label = draw.ints(3, len(emission[0]), 1), emission[1]
    inputs = {"Emission": emission, "Transition": draw.floats(5, 3), "Label": label}
    outputs = "Alpha EmissionExps TransitionExps LogLikelihood"
    yield OpCase("linear_chain_crf", inputs, {}, outputs, "Emission Transition", "LogLikelihood")
    yield OpCase("row_conv", {"X": x, "Filter": draw.floats(2, 3)}, grads="X Filter")


@family
def detection(draw: Draw) -> Iterator[OpCase]:
    features, image = draw.floats(1, 3, 3, 5), draw.floats(1, 3, 30, 50)
    attrs = {
        "min_sizes": [4.0, 9.0],
        "max_sizes": [8.0, 12.0],
        "aspect_ratios": [2.0],
        "flip": True,
    }
    attrs |= {"clip": False, "variances": [0.1, 0.1, 0.2, 0.2]}
    yield OpCase("prior_box", {"Input": features, "Image": image}, attrs, "Boxes Variances")
    attrs = {"anchor_sizes": [32.0], "aspect_ratios": [0.5, 2.0], "stride": [16.0, 16.0]}
    attrs |= {"variances": [0.1, 0.1, 0.2, 0.2]}
    yield OpCase("anchor_generator", {"Input": features}, attrs, "Anchors Variances")
    for normalized in (True, False):
        inputs = {"X": draw.boxes(5, scale=20), "Y": draw.boxes(3, scale=20)}
        yield OpCase("iou_similarity", inputs, {"box_normalized": normalized})
        inputs = {"PriorBox": draw.boxes(4), "TargetBox": draw.boxes(3)}
        attrs = {"code_type": "encode_center_size", "box_normalized": normalized}
        yield OpCase("box_coder", inputs, {**attrs, "variance": [0.1, 0.1, 0.2, 0.2]}, "OutputBox")
        inputs = {"BBoxes": draw.boxes(2, 7), "Scores": draw.floats(2, 3, 7, low=0)}
        attrs = {"score_threshold": 0.1, "nms_top_k": 5, "keep_top_k": 6, "nms_threshold": 0.4}
        attrs |= {"background_label": 0, "normalized": normalized, "nms_eta": 1.0}
        yield OpCase("multiclass_nms2", inputs, attrs, "Out Index")
    for kind in ("bipartite", "per_prediction"):
        inputs = {"DistMat": (draw.floats(5, 7, low=0), [[2, 3]])}
        outputs = "ColToRowMatchIndices ColToRowMatchDist"
        yield OpCase(
            "bipartite_match", inputs, {"match_type": kind, "dist_threshold": 0.4}, outputs
        )
    inputs = {"X": draw.floats(2, 14, 4, 4), "ImgSize": np.array([[60, 50], [90, 99]], "int32")}
    attrs = {"class_num": 2, "anchors": [10, 13, 16, 30], "downsample_ratio": 8, "conf_thresh": 0.3}
    yield OpCase("yolo_box", inputs, attrs, "Boxes Scores")
    rois = (draw.boxes(4, scale=15), [[1, 3]])
    inputs = {"X": draw.apart(2, 3, 8, 9), "ROIs": rois}
    attrs = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}
    yield OpCase("roi_pool", inputs, attrs, "Out Argmax", "X", "Out")
    yield OpCase("roi_align", inputs, {**attrs, "sampling_ratio": 2}, "Out", "X")


def cases(seed: int, families: dict[str, Family] | None = None) -> list[OpCase]:
    """Return all cases for a seed; its parity decides the element type."""
    draw = Draw(seed)
    draw.dtype = "float64" if seed % 2 else "float32"
    chosen = FAMILIES if families is None else families
    return [case for function in chosen.values() for case in function(draw)]
