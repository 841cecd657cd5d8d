"""More cases of single ops, from tables: types that need no more than arrays and attributes.

Each row says what an op takes; `op_cases.py` has the families whose inputs depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from op_cases import Draw, OpCase, family

# Type: attributes. X is a float array of three dimensions, and gradients are compared.
_UNARY: dict[str, list[dict[str, Any]]] = {
    "sign": [{}],
    "erf": [{}],
    "norm": [{"axis": a, "epsilon": 1e-10} for a in (1, -1)],
    "transpose": [{"axis": [2, 0, 1]}],
    "flatten": [{"axis": a} for a in (0, 1, 2)],
    "unstack": [{"axis": 0, "num": 3}, {"axis": -1, "num": 5}],
    "unbind": [{"axis": 0}, {"axis": -1}],
    "frobenius_norm": [{"dim": [1, 2], "keep_dim": k} for k in (False, True)],
    "label_smooth": [{"epsilon": 0.1}],
    "assign": [{}],
    "l1_norm": [{}],
    "increment": [{"step": 2.0}],
}
_OUTPUTS = {"norm": "Out Norm", "unstack": "Y", "unbind": "Out"}
_SIZES = {0: 3, -1: 5}  # of X
# Types without gradients: attributes and the kind of X.
_PLAIN: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "logical_not": ("bool", [{}]),
    "reduce_all": ("bool", [{"dim": [0]}, {"dim": [-1], "keep_dim": True}, {"reduce_all": True}]),
    "reduce_any": ("bool", [{"dim": [0]}, {"dim": [-1], "keep_dim": True}, {"reduce_all": True}]),
    "arg_min": ("float", [{"axis": a, "dtype": 3} for a in (0, -1)]),
    "isfinite": ("float", [{}]),
    "isinf": ("float", [{}]),
    "isnan": ("float", [{}]),
    "fill_any_like": ("float", [{"value": 1.5, "dtype": -1}]),
    "fill_zeros_like": ("float", [{}]),
    "shard_index": ("int", [{"index_num": 20, "nshards": 2, "shard_id": s} for s in (0, 1)]),
    "is_empty": ("float", [{}]),
    "where_index": ("bool", [{}]),
    "sequence_mask": ("int", [{"maxlen": 6, "out_dtype": 5}, {"maxlen": -1, "out_dtype": 3}]),
}
_PLAIN_OUTPUTS = {"sequence_mask": "Y"}
_CONDITION = {"where_index": "Condition"}


@family
def table_of_unary_ops(draw: Draw) -> Iterator[OpCase]:
    for name, settings in _UNARY.items():
        for attrs in settings:
            shape = (1,) if name == "increment" else (3, 2, 5)
            outputs = _OUTPUTS.get(name, "Out")
            last = outputs.split()[0]
            count = _SIZES[attrs["axis"]] if name in ("unstack", "unbind") else 1
            grads = "" if name in ("increment", "sign") else "X"
            counts = {last: count}
            yield OpCase(name, {"X": draw.apart(*shape)}, attrs, outputs, grads, last, counts)


@family
def table_of_ops_without_gradient(draw: Draw) -> Iterator[OpCase]:
    for name, (kind, settings) in _PLAIN.items():
        for attrs in settings:
            x = draw.apart(3, 5) if kind == "float" else draw.ints(6, 3, 1)
            if kind == "bool":
                x = draw.ints(2, 3, 5) > 0
            slot = _CONDITION.get(name, "X")
            yield OpCase(name, {slot: x}, attrs, _PLAIN_OUTPUTS.get(name, "Out"))


@family
def table_of_pairs(draw: Draw) -> Iterator[OpCase]:
    shape = draw.shape(3)
    for name in ("minus", "elementwise_add", "elementwise_mul"):
        yield OpCase(name, {"X": draw.floats(*shape), "Y": draw.floats(*shape)}, grads="X Y")
    for name in ("elementwise_mod", "elementwise_floordiv"):
        x = draw.ints(20, 3, 5), draw.ints(5, 3, 5) + 1
        yield OpCase(name, {"X": x[0], "Y": x[1]}, {"axis": -1})
    pair = {"X": draw.floats(3, 5), "Y": draw.floats(3, 5)}
    for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
        yield OpCase("dist", pair, {"p": p})
    yield OpCase("cross", {"X": draw.floats(4, 3), "Y": draw.floats(4, 3)}, {"dim": 1}, grads="X Y")
    yield OpCase("sum", {"X": [draw.floats(3, 5) for _ in range(3)]}, grads="X")
    condition = {"Condition": draw.ints(2, 3, 5) > 0}
    yield OpCase("where", {**condition, **pair}, grads="X Y")
    inputs = {"Input": draw.floats(3, 2), "X": draw.floats(3, 5), "Y": draw.floats(5, 2)}
    yield OpCase("addmm", inputs, {"Alpha": 0.5, "Beta": 2.0}, grads="Input X Y")
    for dim in (0, 1, -1):
        inputs = {"X": draw.floats(4, 4), "Index": draw.ints(4, 6)}
        yield OpCase("index_select", inputs, {"dim": dim}, grads="X")
    yield OpCase("index_sample", {"X": draw.floats(3, 5), "Index": draw.ints(5, 3, 2)}, grads="X")
    inputs = {"X": draw.floats(4, 5), "Y": draw.floats(3, 2)}
    grads = "Y" if draw.dtype == "float32" else ""
    yield OpCase("pad_constant_like", inputs, {"pad_value": 0.5}, grads=grads)
    inputs = {"X": draw.floats(1, 3, 1), "target_tensor": draw.floats(2, 3, 5)}
    yield OpCase("expand_as", inputs, grads="X")
    rows = [draw.floats(4, 3) for _ in range(3)]
    yield OpCase("multiplex", {"Ids": draw.ints(3, 4, 1, dtype="int32"), "X": rows}, grads="X")
    for mode, shape in (("all", (1,)), ("channel", (3,)), ("element", (1, 3, 2, 2))):
        inputs = {"X": draw.apart(2, 3, 2, 2), "Alpha": draw.floats(*shape)}
        yield OpCase("prelu", inputs, {"mode": mode}, grads="X Alpha")
    inputs = {"X": draw.floats(2, 3, 4, 5), "Scale": draw.floats(3), "Bias": draw.floats(3)}
    yield OpCase("affine_channel", inputs, {"data_layout": "NCHW"}, grads="X Scale Bias")
    attrs = {"kernel_sizes": [2, 3], "strides": [1, 2], "paddings": [1, 0, 0, 1]}
    x = {"X": draw.floats(1, 2, 4, 5)}
    yield OpCase("unfold", x, {**attrs, "dilations": [1, 1]}, "Y", "X")
    logits = {"Logits": draw.apart(5, 1), "Labels": draw.ints(2, 5, 1).astype(draw.dtype)}
    yield OpCase("hinge_loss", logits, {}, "Loss", "Logits")
    share = {"X": draw.floats(5, 1, low=0.1, high=0.9), "Label": draw.floats(5, 1, low=0)}
    yield OpCase("bce_loss", share, grads="X")
    table = {"W": draw.floats(9, 4), "Ids": draw.ints(9, 3, 2)}
    yield OpCase("lookup_table_v2", table, {"padding_idx": 3}, grads="W")
    yield OpCase("diag_embed", {"Input": draw.floats(2, 3)}, {"offset": 1, "dim1": 0, "dim2": 2})
    yield OpCase("meshgrid", {"X": [draw.floats(3), draw.floats(2)]}, grads="X", counts={"Out": 2})


# Update ops: their state besides Param, Grad and LearningRate, and attributes.
UPDATES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("", {}),
    "momentum": ("Velocity", {"mu": 0.9, "use_nesterov": True}),
    "lars_momentum": ("Velocity", {"mu": 0.9, "lars_coeff": 0.01, "lars_weight_decay": 0.02}),
    "adagrad": ("Moment", {"epsilon": 1e-6}),
    "decayed_adagrad": ("Moment", {"decay": 0.9, "epsilon": 1e-6}),
    "proximal_gd": ("", {"l1": 0.1, "l2": 0.2}),
    "proximal_adagrad": ("Moment", {"l1": 0.1, "l2": 0.2}),
    "ftrl": ("SquaredAccumulator LinearAccumulator", {"l1": 0.1, "l2": 0.2, "lr_power": -0.5}),
    "rmsprop": (
        "MeanSquare Moment MeanGrad",
        {"decay": 0.9, "momentum": 0.1, "epsilon": 0.8, "centered": True},
    ),
    "adamax": ("Moment InfNorm Beta1Pow", {"beta1": 0.9, "beta2": 0.99}),
    "adam": ("Moment1 Moment2 Beta1Pow Beta2Pow", {"beta1": 0.9, "beta2": 0.99}),
}
NEW_NAMES = {"SquaredAccumulator": "SquaredAccumOut", "LinearAccumulator": "LinearAccumOut"}


@family
def updates_in_place(draw: Draw) -> Iterator[OpCase]:
    for name, (state, attrs) in UPDATES.items():
        inputs = {"Param": draw.floats(3, 5), "Grad": draw.floats(3, 5)}
        inputs["LearningRate"] = draw.floats(1, low=0.01, high=0.1)
        for slot in state.split():
            scalar = slot.endswith("Pow")
            inputs[slot] = draw.floats(*((1,) if scalar else (3, 5)), low=0.1, high=0.9)
        changed = ["Param", *state.split()]
        if name == "adamax":
            changed.remove("Beta1Pow")
        outputs = {NEW_NAMES.get(slot, f"{slot}Out"): slot for slot in changed}
        yield OpCase(name, inputs, attrs, " ".join(outputs), in_place=outputs)


@family
def ops_in_place(draw: Draw) -> Iterator[OpCase]:
    x = draw.apart(3, 5)
    for name in ("relu", "tanh", "scale", "exp", "sigmoid", "clip", "softmax"):
        attrs = {"scale": {"scale": 2.0, "bias": 0.5}, "clip": {"min": -0.4, "max": 0.5}}
        yield OpCase(name, {"X": x}, attrs.get(name, {}), in_place={"Out": "X"})
    for name in ("elementwise_add", "elementwise_mul", "elementwise_sub"):
        inputs = {"X": x, "Y": draw.floats(5)}
        yield OpCase(name, inputs, {"axis": -1}, in_place={"Out": "X"})
    yield OpCase("increment", {"X": draw.floats(1)}, {"step": 1.0}, in_place={"Out": "X"})


@family
def empty_arrays(draw: Draw) -> Iterator[OpCase]:
    """Arrays without elements, where Paddle takes them: no rows in a batch."""
    x = draw.floats(0, 3)
    for name in ("relu", "tanh", "sigmoid", "exp", "square", "abs", "scale", "softmax"):
        yield OpCase(name, {"X": x}, {})
    for name in ("elementwise_add", "elementwise_mul", "elementwise_sub"):
        yield OpCase(name, {"X": x, "Y": draw.floats(0, 3)}, {"axis": -1})
    yield OpCase("concat", {"X": [x, draw.floats(2, 3)]}, {"axis": 0})
    yield OpCase("cast", {"X": x}, {"in_dtype": 5, "out_dtype": 2})


@family
def table_of_volumes(draw: Draw) -> Iterator[OpCase]:
    inputs = {"Input": draw.floats(1, 2, 4, 5, 3), "Filter": draw.floats(3, 2, 2, 3, 2)}
    attrs: dict[str, Any] = {"strides": [1, 2, 1], "paddings": [1, 0, 1], "dilations": [1, 1, 1]}
    yield OpCase("conv3d", inputs, {**attrs, "groups": 1}, "Output", "Input Filter")
    inputs = {"Input": draw.floats(1, 2, 3, 2, 3), "Filter": draw.floats(2, 3, 2, 3, 2)}
    yield OpCase("conv3d_transpose", inputs, {**attrs, "groups": 1}, "Output", "Input Filter")
    inputs = {"Input": draw.floats(2, 3, 5, 4), "Filter": draw.floats(3, 1, 3, 2)}
    attrs = {"strides": [2, 1], "paddings": [1, 0], "dilations": [1, 1], "groups": 3}
    yield OpCase("depthwise_conv2d", inputs, attrs, "Output", "Input Filter")
    for kind in ("max", "avg"):
        attrs = {"pooling_type": kind, "ksize": [2, 3, 2], "strides": [2, 2, 1]}
        x = {"X": draw.apart(1, 2, 5, 5, 3)}
        yield OpCase("pool3d", x, {**attrs, "paddings": [0, 1, 0]}, grads="X")
        pyramid = {"pyramid_height": 2, "pooling_type": kind}
        yield OpCase("spp", {"X": draw.apart(2, 3, 4, 4)}, pyramid, grads="X")
    attrs = {"ksize": [2, 2, 2], "strides": [2, 2, 1], "paddings": [0, 1, 0]}
    x = {"X": draw.apart(1, 2, 5, 4, 3)}
    yield OpCase("max_pool3d_with_index", x, attrs, "Out Mask", "X", "Out")
    for is_test in (False, True):
        inputs = {"X": draw.floats(3, 4, 2, 5), "Scale": draw.floats(4), "Bias": draw.floats(4)}
        inputs |= {"Mean": draw.floats(4), "Variance": draw.floats(4, low=0.5, high=2)}
        attrs = {"is_test": is_test, "epsilon": 1e-5, "momentum": 0.9, "data_layout": "NCHW"}
        outputs = "Y MeanOut VarianceOut SavedMean SavedVariance"
        in_place = {"MeanOut": "Mean", "VarianceOut": "Variance"}
        grads = "" if is_test else "X Scale Bias"
        hidden = "SavedMean SavedVariance" if is_test else ""
        yield OpCase(
            "batch_norm", inputs, attrs, outputs, grads, "Y", hidden=hidden, in_place=in_place
        )


@family
def table_of_sequences(draw: Draw) -> Iterator[OpCase]:
    ids = (draw.ints(4, 7, 1), [[3, 4]])
    yield OpCase("sequence_erase", {"X": ids}, {"tokens": [0, 2]})
    inputs = {"X": (draw.floats(7, 2), [[3, 4]]), "Offset": np.array([[1], [0]])}
    yield OpCase("sequence_slice", {**inputs, "Length": np.array([[2], [3]])}, grads="X")
    inputs = {"X": draw.floats(2, 4, 3), "Length": np.array([2, 4])}
    yield OpCase("sequence_unpad", inputs)
    updates = (draw.floats(5, 1), [[3, 2]])
    inputs = {"X": draw.floats(2, 6), "Ids": (np.array([[0], [3], [5], [1], [2]]), [[3, 2]])}
    yield OpCase("sequence_scatter", {**inputs, "Updates": updates}, grads="X Updates")
    yield OpCase("lod_reset", {"X": (draw.floats(5, 2), [[2, 3]])}, {"target_lod": [0, 1, 5]})
    for normalized in (False, True):
        inputs = {"Hyps": (draw.ints(4, 5, 1), [[2, 3]]), "Refs": (draw.ints(4, 6, 1), [[4, 2]])}
        attrs: dict[str, Any] = {"normalized": normalized}
        yield OpCase("edit_distance", inputs, attrs, "Out SequenceNum")
    merged = {"merge_repeated": True, "blank": 0}
    yield OpCase(
        "ctc_align", {"Input": (draw.ints(3, 7, 1, dtype="int32"), [[3, 4]])}, merged, "Output"
    )
    for combiner in ("sum",):
        inputs = {"W": draw.floats(9, 4), "Ids": ids}
        yield OpCase("fused_embedding_seq_pool", inputs, {"combiner": combiner}, grads="W")
    inputs = {"X": draw.floats(3, 8), "C_prev": draw.floats(3, 2)}
    yield OpCase("lstm_unit", inputs, {"forget_bias": 0.5}, "C H", "X C_prev")
    inputs = {"Input": draw.floats(3, 6), "HiddenPrev": draw.floats(3, 2)}
    inputs |= {"Weight": draw.floats(2, 6), "Bias": draw.floats(1, 6)}
    outputs = "Gate ResetHiddenPrev Hidden"
    yield OpCase("gru_unit", inputs, {}, outputs, "Input HiddenPrev Weight Bias", "Hidden")
    inputs = {"Emission": draw.sequence(3), "Transition": draw.floats(5, 3)}
    yield OpCase("crf_decoding", inputs, {}, "ViterbiPath")


@family
def table_of_constants(draw: Draw) -> Iterator[OpCase]:
    yield OpCase("fill_constant", {}, {"shape": [2, 3], "value": 1.5, "dtype": 5})
    yield OpCase("fill_constant", {}, {"shape": [2], "str_value": "9007199254740993", "dtype": 3})
    yield OpCase("eye", {}, {"num_rows": 3, "num_columns": 5, "dtype": 5})
    start, stop = np.array([1.0], "float32"), np.array([2.0], "float32")
    inputs = {"Start": start, "Stop": stop, "Num": np.array([5], "int32")}
    yield OpCase("linspace", inputs, {"dtype": 5})
    step = np.array([0.3], "float32")
    yield OpCase("range", {"Start": start, "End": stop, "Step": step})
    attrs: dict[str, Any] = {"shape": [-1, 2], "value": 0.5, "dtype": 5}
    like = {"input_dim_idx": 0, "output_dim_idx": 0}
    inputs = {"Input": draw.floats(3, 5)}
    yield OpCase("fill_constant_batch_size_like", inputs, {**attrs, **like})
    values = {"shape": [2, 2], "dtype": 5, "fp32_values": [1.0, 2.0, 3.0, 4.5]}
    yield OpCase("assign_value", {}, values)
    yield OpCase("diag", {"Diagonal": draw.floats(3)})
    yield OpCase("size", {"Input": draw.floats(3, 5)})
    for type_ in ("reshape", "squeeze", "unsqueeze"):
        attrs = {"reshape": {"shape": [0, -1]}, "squeeze": {"axes": [1]}}.get(
            type_, {"axes": [0, -1]}
        )
        yield OpCase(type_, {"X": draw.floats(3, 1, 5)}, attrs, grads="X")


@family
def table_of_losses_and_metrics(draw: Draw) -> Iterator[OpCase]:
    inputs = {"X": draw.apart(5, 1), "Label": draw.floats(5, 1, low=0.1)}
    yield OpCase("teacher_student_sigmoid_loss", inputs, {}, "Y", "X")
    inputs = {"X": draw.apart(5, 1), "Y": draw.ints(2, 5, 1).astype(draw.dtype)}
    yield OpCase("modified_huber_loss", inputs, {}, "IntermediateVal Out", "X", "Out")
    inputs = {"X": draw.floats(2, 3, 4, 2), "Y": draw.floats(2, 5, 4, 2)}
    yield OpCase("fsp", inputs, grads="X Y")
    yield OpCase("conv_shift", {"X": draw.floats(2, 7), "Y": draw.floats(2, 3)}, grads="X Y")
    inputs = {"X": draw.floats(4, 5), "CVM": draw.floats(4, 2, low=0.1)}
    for use in (True, False):
        x = {**inputs, "X": draw.floats(4, 5, low=0.1)}
        yield OpCase("cvm", x, {"use_cvm": use}, "Y")
    inputs = {"Input": draw.floats(3, 2, 2), "W": draw.floats(4, 5), "Bias": draw.floats(5)}
    yield OpCase("fc", inputs, {"in_num_col_dims": 1})
    parts = [draw.floats(3, 5), draw.floats(3, 5)]
    for name in ("partial_concat", "partial_sum"):
        yield OpCase(name, {"X": parts}, {"start_index": 1, "length": 2}, grads="X")
    beams = {"Ids": draw.ints(9, 4, 2, 3), "Parents": draw.ints(3, 4, 2, 3)}
    yield OpCase("gather_tree", beams)
    inputs = {"Out": draw.floats(4, 2), "Indices": draw.ints(3, 4, 2), "Label": draw.ints(3, 4, 1)}
    yield OpCase("accuracy", inputs, {}, "Accuracy Correct Total")
    inputs = {
        "Predictions": draw.ints(3, 8, dtype="int32"),
        "Labels": draw.ints(3, 8, dtype="int32"),
    }
    yield OpCase("mean_iou", inputs, {"num_classes": 3}, "OutMeanIou OutWrong OutCorrect")
    attrs = {"kernels": [2, 2], "strides": [1, 2], "paddings": [0, 1, 1, 0]}
    yield OpCase("im2sequence", {"X": draw.floats(2, 2, 4, 3)}, attrs, grads="X")
    inputs = {"Input": (draw.boxes(4, scale=20), [[1, 3]])}
    inputs["ImInfo"] = np.array([[10, 12, 1], [9, 14, 1]], draw.dtype)
    yield OpCase("box_clip", inputs, {}, "Output")
    yield OpCase("polygon_box_transform", {"Input": draw.floats(1, 4, 2, 3)}, {}, "Output")
    yield OpCase("unique", {"X": draw.ints(4, 9)}, {"dtype": 3}, "Out Index")
    yield OpCase("unique_with_counts", {"X": draw.ints(4, 9)}, {"dtype": 3}, "Out Index Count")
    inputs = {"Weight": draw.floats(3, 4), "U": draw.floats(3), "V": draw.floats(4)}
    yield OpCase("spectral_norm", inputs, {"dim": 0, "power_iters": 2, "eps": 1e-12})
