"""Cases of ops that few programs use: recommendation, text matching, trees, further regions.

Importing this module adds them to the families of `op_cases`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_cases import Draw, OpCase, family


@family
def recommendation(draw: Draw) -> Iterator[OpCase]:
    for dtype, width in (("int64", 1), ("int64", 3), ("int64", 9), ("int32", 5), ("int32", 11)):
        ids = draw.random.randint(-(2**31), 2**31, (4, width)).astype(dtype)
        attrs = {"num_hash": 3, "mod_by": int(draw.random.randint(1, 2**31 - 1))}
        yield OpCase("hash", {"X": (ids, [[1, 3]])}, attrs)
    for seed in (7, -65536, 2**31 - 1):
        inputs = {"X": draw.floats(3, 5, 2), "Seed": np.array([seed])}
        yield OpCase("shuffle_batch", inputs, {}, "Out ShuffleIdx SeedOut", "X", "Out")
    tags = (np.array([[1], [2], [3], [2], [4]]), [[2, 1, 2]])
    outputs = "Out LossWeight IndexMap"
    for wanted in ([2], [4, 1], [9]):
        inputs = {"Ins": draw.floats(3, 4), "Ins_tag": tags, "Filter_tag": np.array(wanted)}
        attrs = {"is_lod": False, "out_val_if_empty": 5}
        yield OpCase("filter_by_instag", inputs, attrs, outputs, "Ins", "Out")
        inputs = {**inputs, "Ins": (draw.floats(6, 4), [[1, 3, 2]])}
        attrs = {"is_lod": True, "out_val_if_empty": 0}
        yield OpCase("filter_by_instag", inputs, attrs, outputs, "Ins", "Out")
    # item, layer, parent, two children
    tree = [[0, 0, 0, 0, 0], [0, 0, 0, 2, 3], [0, 1, 1, 4, 5], [7, 1, 1, 0, 0]]
    tree += [[8, 2, 2, 0, 0], [9, 2, 2, 0, 0]]
    for dtype, number in (("int32", 2), ("int64", 3)):
        inputs = {"X": draw.ints(6, 7, 1, dtype=dtype), "TreeInfo": np.array(tree, dtype)}
        yield OpCase("tdm_child", inputs, {"child_nums": 2, "dtype": number}, "Child LeafMask")
        # one node left in each layer: the result does not depend on chance
        travel, layer = [[1, 3], [1, 4], [2, 0]], [[1], [2], [3], [4]]
        inputs = {"X": draw.ints(3, 5, 1), "Travel": np.array(travel, dtype)}
        inputs |= {"Layer": np.array(layer, dtype)}
        for positive in (True, False):
            attrs = {"output_positive": positive, "neg_samples_num_list": [1, 1], "seed": 3}
            attrs |= {"layer_offset_lod": [0, 2, 4], "dtype": number}
            yield OpCase("tdm_sampler", inputs, attrs, "Out Labels Mask")
    inputs = {"Param": draw.floats(3, 4), "Grad": draw.floats(3, 4)}
    inputs |= {"Moment1": draw.floats(3, 4), "Moment2": draw.floats(3, 4, low=0.1)}
    powers = {"Beta1Pow": np.array([0.9**3]), "Beta2Pow": np.array([0.999**3])}
    inputs |= {slot: value.astype(draw.dtype) for slot, value in powers.items()}
    inputs["LearningRate"] = np.array([0.01], draw.dtype)
    attrs = {"weight_decay": 0.02, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}
    yield OpCase("lamb", inputs, attrs, "ParamOut Moment1Out Moment2Out")


@family
def matrices_of_texts(draw: Draw) -> Iterator[OpCase]:
    left, right = draw.sequence(3), draw.sequence(3)
    inputs = {"X": left, "Y": right, "W": draw.floats(3, 2, 3)}
    yield OpCase("match_matrix_tensor", inputs, {"dim_t": 2}, "Out Tmp", "X Y W", "Out")
    rows, columns = (side[1][0] for side in (left, right))
    sizes = [2 * r * c for r, c in zip(rows, columns, strict=True)]
    inputs = {"X": (draw.apart(sum(sizes), 1), [sizes]), "ROW": left, "COLUMN": right}
    for topks in ([1], [1, 3], [2, 3, 7]):
        attrs = {"topks": topks, "channel_num": 2}
        yield OpCase("sequence_topk_avg_pooling", inputs, attrs, "Out pos", "X", "Out")
    for kernel, stride in (((1, 1), (1, 1)), ((3, 3), (1, 1)), ((2, 3), (2, 1)), ((5, 2), (3, 2))):
        attrs = {"InputChannel": 2, "OutputChannel": 3, "KernelH": kernel[0], "KernelW": kernel[1]}
        attrs |= {"StrideH": stride[0], "StrideW": stride[1]}
        given = {**inputs, "W": draw.floats(3, 2 * kernel[0] * kernel[1])}
        yield OpCase("var_conv_2d", given, attrs, "Out Col", "X W", "Out")


@family
def trees_and_attention(draw: Draw) -> Iterator[OpCase]:
    edges = [[1, 2], [1, 3], [1, 4], [3, 5], [3, 6], [6, 7], [0, 0]]
    # all nodes in both trees: Paddle does not clear the rows of missing ones
    chain = [[1, 2], [2, 3], [3, 4], [4, 5], [4, 6], [2, 7], [0, 0]]
    for depth in (2, 3, 5):
        inputs = {"NodesVector": draw.floats(2, 7, 3), "EdgeSet": np.array([edges, chain], "int32")}
        inputs["Filter"] = draw.floats(3, 3, 4, 2)
        yield OpCase("tree_conv", inputs, {"max_depth": depth}, "Out", "Filter")
        why = "the gradient of the nodes takes the filters in another order"
        yield OpCase("tree_conv", inputs, {"max_depth": depth}, "Out", "NodesVector", differs=why)
    # the last sequence is the longest one: others leave rests in memory that is used again
    x = (draw.floats(10, 3), [[2, 3, 5]])
    inputs = {"X": x, "C0": draw.floats(3, 4), "AttentionWeight": draw.floats(7, 1)}
    inputs |= {"LSTMWeight": draw.floats(7, 16), "LSTMBias": draw.floats(1, 16)}
    outputs = "Hidden Cell AttentionedX AttentionFCOut LSTMX LSTMOUT"
    yield OpCase("attention_lstm", inputs, {}, outputs)
    one = {slot: draw.floats(1, 1, low=0.1) for slot in ("AttentionBias", "AttentionScalar")}
    more = {**inputs, **one, "H0": draw.floats(3, 4), "AttentionScalarBias": draw.floats(1, 1)}
    attrs = {"gate_activation": "tanh", "cell_activation": "sigmoid"}
    yield OpCase("attention_lstm", more, {**attrs, "candidate_activation": "relu"}, outputs)
    for functors in (
        ["elementwise_add", "relu"],
        ["relu", "elementwise_add"],
        ["elementwise_add", "scale"],
        ["scale", "elementwise_add"],
        ["elementwise_mul", "scale"],
    ):
        for axis, part in ((-1, (2, 3, 5)), (1, (3,)), (-1, (5,))):
            inputs = {"X": draw.apart(2, 3, 5), "Y": draw.apart(*part)}
            attrs = {"axis": axis, "scale": 0.3, "functor_list": functors}
            attrs["save_intermediate_out"] = True
            name = "fused_elemwise_activation"
            yield OpCase(name, inputs, attrs, "Out IntermediateOut", "X Y", "Out")


@family
def further_regions(draw: Draw) -> Iterator[OpCase]:
    x, rois = draw.apart(2, 3, 8, 9), (draw.boxes(4, scale=15), [[1, 3]])
    attrs = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}
    yield OpCase("prroi_pool", {"X": x, "ROIs": rois}, attrs, "Out", "X ROIs")
    counted = {"X": x, "ROIs": rois[0], "BatchRoINums": np.array([1, 3])}
    yield OpCase("prroi_pool", counted, attrs, "Out", "X ROIs")
    for no_trans in (True, False):
        for group, part in (([1, 1], [3, 3]), ([2, 2], [2, 2])):
            channels = 8 // (group[0] * group[1])
            inputs = {"Input": draw.apart(2, 8, 8, 9), "ROIs": rois}
            inputs["Trans"] = draw.floats(4, 4, *part)
            attrs = {"no_trans": no_trans, "spatial_scale": 0.5, "output_dim": channels}
            attrs |= {"group_size": group, "part_size": part, "sample_per_part": 3}
            attrs |= {"pooled_height": 2, "pooled_width": 3, "trans_std": 0.3}
            name, outputs = "deformable_psroi_pooling", "TopCount Output"
            yield OpCase(name, inputs, attrs, outputs, "Input Trans", "Output")
    corners = np.array([[1, 2], [13, 1], [14, 12], [2, 13]]) + draw.random.uniform(-1, 1, (3, 4, 2))
    inputs = {"X": draw.apart(2, 3, 7, 9), "ROIs": (corners.reshape(3, 8), [[1, 2]])}
    inputs["ROIs"] = (inputs["ROIs"][0].astype(draw.dtype), [[1, 2]])
    attrs = {"transformed_height": 5, "transformed_width": 6, "spatial_scale": 0.5}
    outputs = "Out Mask TransformMatrix Out2InIdx Out2InWeights"
    yield OpCase("roi_perspective_transform", inputs, attrs, outputs, "X", "Out")
    yield from _masks(draw)


def _masks(draw: Draw) -> Iterator[OpCase]:
    """Yield images with objects of one and two polygons, and one without an object."""
    angle = np.sort(draw.random.uniform(0, 2 * np.pi, (5, 6)), 1)
    points = np.stack([np.cos(angle), np.sin(angle)], -1) * 8 + draw.random.uniform(
        8, 30, (5, 1, 2)
    )
    polygons = (points.reshape(-1, 2).astype(draw.dtype), [[3, 1], [1, 2, 1, 1], [6] * 5])
    boxes = draw.boxes(6, scale=60)
    for labels in ([1, 0, 2, 2, 1, 0], [1, 0, 2, 0, 0, 0]):
        inputs = {"ImInfo": np.array([[60, 60, 1.5], [50, 60, 2.0]], draw.dtype)}
        inputs |= {"GtClasses": (np.array([[1], [2], [2], [1]], "int32"), [[3, 1]])}
        inputs |= {"IsCrowd": (np.array([[0], [0], [1], [0]], "int32"), [[3, 1]])}
        inputs |= {"GtSegms": polygons, "Rois": (boxes, [[3, 3]])}
        inputs |= {"LabelsInt32": (np.array(labels, "int32").reshape(6, 1), [[3, 3]])}
        attrs = {"num_classes": 3, "resolution": 9}
        yield OpCase("generate_mask_labels", inputs, attrs, "MaskRois RoiHasMaskInt32 MaskInt32")


@family
def quantization(draw: Draw) -> Iterator[OpCase]:
    for bits in (8, 4):
        x = {"X": draw.floats(3, 4, 2)}
        attrs = {"bit_length": bits}
        yield OpCase("fake_quantize_abs_max", x, attrs, "Out OutScale")
        yield OpCase("fake_channel_wise_quantize_abs_max", x, attrs, "Out OutScale")
        one = {slot: draw.floats(1, low=0.5) for slot in ("InScale", "InAccum", "InState")}
        for test in (False, True):
            attrs = {"bit_length": bits, "moving_rate": 0.8, "is_test": test}
            outputs = "Out OutScale" if test else "Out OutScale OutState OutAccum"
            hidden = "OutScale" if test else ""
            name = "fake_quantize_moving_average_abs_max"
            yield OpCase(name, {**x, **one}, attrs, outputs, hidden=hidden)
            name = "fake_quantize_dequantize_moving_average_abs_max"
            yield OpCase(name, {**x, **one}, attrs, outputs, "X", "Out", hidden=hidden)
        steps = {"X": draw.ints(9, 3, 4).astype(draw.dtype) - 4}
        scale = {"Scale": draw.floats(1, low=0.5)}
        yield OpCase("fake_dequantize_max_abs", {**steps, **scale}, {"max_range": 7.0})
        name = "fake_channel_wise_dequantize_max_abs"
        yield OpCase(name, {**steps, "Scales": [draw.floats(3, low=0.5)]}, {"quant_bits": [bits]})
        pair = [draw.floats(4, low=0.5), draw.floats(1, low=0.5)]
        yield OpCase(name, {**steps, "Scales": pair}, {"quant_bits": [bits, 8]})


@family
def stored_integers(draw: Draw) -> Iterator[OpCase]:
    if draw.dtype == "float32":  # Paddle has these in single precision alone
        steps = draw.random.randint(-128, 128, (3, 4)).astype("int8")
        inputs = {"X": steps, "Scale": np.array([0.7], "float32")}
        yield OpCase("dequantize_abs_max", inputs, {"max_range": 127.0})
        inputs = {"X": steps, "Dict": draw.floats(128)}
        yield OpCase("dequantize_log", inputs)
        table = draw.floats(6, 5)
        inputs = {"W": table, "Ids": draw.ints(6, 4, 1)}
        for padding in (-1, 2):
            yield OpCase("lookup_table_dequant", inputs, {"padding_idx": padding})
        inputs = {"X": draw.floats(3, 4), "InAccum": draw.floats(1, low=0.5)}
        inputs["InState"] = draw.floats(1, low=0.5)
        outputs = "Out OutScale OutState OutAccum"
        yield OpCase("moving_average_abs_max_scale", inputs, {"moving_rate": 0.8}, outputs)
        inputs = {"X": [draw.floats(2, 3) for _ in range(3)], "TrainerId": np.array([1])}
        yield OpCase("ref_by_trainer_id", inputs)
    inputs = {"Ids": [np.array([[0], [2], [5]]), np.array([[6], [0]])]}
    inputs |= {"Rows": [np.array([[0], [2]]), np.array([[5], [6]])]}
    inputs |= {"X": [draw.floats(2, 3), draw.floats(2, 3)]}
    yield OpCase("merge_ids", inputs, {}, counts={"Out": 2})
    yield OpCase("split_ids", {"Ids": inputs["Ids"]}, {}, counts={"Out": 2})
    for transpose in (False, True) if draw.dtype == "float32" else ():
        x, y = draw.floats(2, 3, 8), draw.floats(2, 8, 5)
        inputs = {"X": x.swapaxes(1, 2).copy(), "Y": y.swapaxes(1, 2).copy()}
        inputs = inputs if transpose else {"X": x, "Y": y}
        attrs = {"transpose_X": transpose, "transpose_Y": transpose, "head_number": 4}
        yield OpCase("matmul", inputs, attrs)
