"""Ops that shape, join, slice and search tensors: against NumPy, gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_check import check_op

from fleetx import static
from fleetx.static.shapes.infer_shape import ShapeError

RNG = np.random.default_rng(1)


def uniform(*shape: int) -> np.ndarray:
    return RNG.uniform(-1.0, 1.0, shape)


def apart(*shape: int) -> np.ndarray:
    """Return values far from each other, so that differences see no kink."""
    return RNG.permutation(np.arange(int(np.prod(shape))) * 0.3 - 1.0).reshape(shape)


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int32")


# -- shape -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("type", ["reshape2", "reshape"])
def test_reshape(type: str) -> None:
    x = uniform(2, 3, 4)
    check_op(type, {"X": x}, {"shape": [0, -1]}, {"Out": x.reshape(2, 12)})
    check_op(type, {"X": x}, {"shape": [4, 6]}, {"Out": x.reshape(4, 6)})
    check_op(type, {"X": x, "Shape": ints(4, 6)}, {}, {"Out": x.reshape(4, 6)})
    parts = {"X": x, "ShapeTensor": [ints(4), ints(-1)]}
    check_op(type, parts, {"shape": [-1, -1]}, {"Out": x.reshape(4, 6)})
    with pytest.raises(ShapeError, match="24 elements cannot be reshaped"):
        check_op(type, {"X": x}, {"shape": [5, -1]})


def test_reshape_of_an_unknown_batch_keeps_what_is_known() -> None:
    block = static.Program().global_block()
    block.create_var(name="x", shape=[-1, 13], dtype="float32")
    for shape, expected in (([-1, 11], (-1, 11)), ([0, -1], (-1, -1)), ([128, 13], (128, 13))):
        out = block.create_var(name=f"out{len(block.ops)}")
        block.append_op(
            type="reshape2", inputs={"X": "x"}, outputs={"Out": out}, attrs={"shape": shape}
        )
        assert out.shape == expected


def test_x_shape_keeps_the_input_shape_in_the_program() -> None:
    block = static.Program().global_block()
    block.create_var(name="x", shape=[-1, 1, 3], dtype="float32")
    for type, attrs in (
        ("reshape2", {"shape": [-1, 3]}),
        ("transpose2", {"axis": [1, 0, 2]}),
        ("squeeze2", {"axes": [1]}),
        ("unsqueeze2", {"axes": [0]}),
        ("flatten2", {"axis": 1}),
        ("flatten_contiguous_range", {"start_axis": 1, "stop_axis": 2}),
    ):
        out, kept = block.create_var(name=f"o_{type}"), block.create_var(name=f"k_{type}")
        outputs = {"Out": out, "XShape": kept}
        block.append_op(type=type, inputs={"X": "x"}, outputs=outputs, attrs=attrs)
        assert kept.shape == (0, -1, 1, 3)


@pytest.mark.parametrize("suffix", ["", "2"])
def test_transpose_squeeze_unsqueeze_flatten(suffix: str) -> None:
    x = uniform(2, 1, 3, 1)
    transposed = x.transpose(2, 0, 3, 1)
    check_op(f"transpose{suffix}", {"X": x}, {"axis": [2, 0, 3, 1]}, {"Out": transposed})
    check_op(f"squeeze{suffix}", {"X": x}, {"axes": [1]}, {"Out": x.squeeze(1)})
    check_op(f"squeeze{suffix}", {"X": x}, {"axes": [0, -1]}, {"Out": x.squeeze(-1)})
    check_op(f"squeeze{suffix}", {"X": x}, {}, {"Out": x.squeeze()})
    check_op(f"squeeze{suffix}", {"X": x[:1, :, :1]}, {}, {"Out": x[0, 0, 0]})
    check_op(f"unsqueeze{suffix}", {"X": x}, {"axes": [0, -1]}, {"Out": x[None, ..., None]})
    whole = {"X": x, "AxesTensor": ints(0, 2)}
    check_op(f"unsqueeze{suffix}", whole, {}, {"Out": x[None, :, None]})
    parts = {"X": x, "AxesTensorList": [ints(1)]}
    check_op(f"unsqueeze{suffix}", parts, {}, {"Out": x[:, None]})
    check_op(f"flatten{suffix}", {"X": x}, {"axis": 2}, {"Out": x.reshape(2, 3)})
    check_op(f"flatten{suffix}", {"X": x}, {"axis": 0}, {"Out": x.reshape(1, 6)})
    with pytest.raises(ShapeError, match="order of its 4 dimensions"):
        check_op(f"transpose{suffix}", {"X": x}, {"axis": [0, 1, 2]})


def test_flatten_a_range() -> None:
    x = uniform(2, 3, 2, 2)
    attrs = {"start_axis": 1, "stop_axis": 2}
    check_op("flatten_contiguous_range", {"X": x}, attrs, {"Out": x.reshape(2, 6, 2)})
    attrs = {"start_axis": 1, "stop_axis": -1}
    check_op("flatten_contiguous_range", {"X": x}, attrs, {"Out": x.reshape(2, 12)})


def test_repetition() -> None:
    x = uniform(2, 1)
    tiled = np.tile(x, (2, 3))
    check_op("expand", {"X": x}, {"expand_times": [2, 3]}, {"Out": tiled})
    check_op("expand", {"X": x, "ExpandTimes": ints(2, 3)}, {}, {"Out": tiled})
    parts = {"X": x, "expand_times_tensor": [ints(2), ints(3)]}
    check_op("expand", parts, {"expand_times": [-1, 3]}, {"Out": tiled})
    check_op("expand_as", {"X": x, "target_tensor": uniform(4, 3)}, {}, {"Out": tiled})
    check_op("tile", {"X": x}, {"repeat_times": [2, 1, 3]}, {"Out": np.tile(x, (2, 1, 3))})
    check_op("tile", {"X": x, "RepeatTimes": ints(2, 3)}, {}, {"Out": tiled})
    wide = np.broadcast_to(x, (3, 2, 4))
    check_op("expand_v2", {"X": x}, {"shape": [3, -1, 4]}, {"Out": wide})
    check_op("expand_v2", {"X": x, "Shape": ints(3, 2, 4)}, {}, {"Out": wide})
    check_op("expand_as_v2", {"X": x, "Y": uniform(3, 2, 4)}, {}, {"Out": wide})
    check_op("expand_as_v2", {"X": x}, {"target_shape": [3, 2, 4]}, {"Out": wide})
    both = [np.broadcast_to(x, (2, 3)), np.broadcast_to(uniform(3) * 0 + 1, (2, 3))]
    check_op("broadcast_tensors", {"X": [x, np.ones(3)]}, {}, {"Out": both})
    with pytest.raises(ShapeError, match="cannot be expanded"):
        check_op("expand_v2", {"X": x}, {"shape": [3, 1]})


def test_order() -> None:
    x = uniform(2, 3)
    check_op("reverse", {"X": x}, {"axis": [0]}, {"Out": x[::-1]})
    check_op("flip", {"X": x}, {"axis": [0, 1]}, {"Out": x[::-1, ::-1]})
    check_op("flip", {"X": x}, {"dims": [1]}, {"Out": x[:, ::-1]})
    attrs = {"shifts": [1, -1], "axis": [0, 1]}
    check_op("roll", {"X": x}, attrs, {"Out": np.roll(x, (1, -1), (0, 1))})
    check_op("roll", {"X": x}, {"shifts": [2], "dims": [1]}, {"Out": np.roll(x, 2, 1)})
    check_op("roll", {"X": x}, {"shifts": [2]}, {"Out": np.roll(x, 2)})


# -- joining and splitting -------------------------------------------------------------------------
def test_concat_and_stack() -> None:
    x, y = uniform(2, 3), uniform(2, 1)
    check_op("concat", {"X": [x, y]}, {"axis": 1}, {"Out": np.concatenate([x, y], 1)})
    check_op("concat", {"X": [x, x]}, {"axis": -2}, {"Out": np.concatenate([x, x])})
    inputs = {"X": [x, y], "AxisTensor": ints(1)}
    check_op("concat", inputs, {}, {"Out": np.concatenate([x, y], 1)})
    check_op("stack", {"X": [x, x + 1]}, {"axis": 1}, {"Y": np.stack([x, x + 1], 1)})
    for type, slot in (("unstack", "Y"), ("unbind", "Out")):
        check_op(type, {"X": x}, {"axis": 1}, {slot: [x[:, 0], x[:, 1], x[:, 2]]})
    with pytest.raises(ShapeError, match="differ in dimension 0"):
        check_op("concat", {"X": [x, uniform(3, 3)]}, {"axis": 1})


def test_concat_of_a_batch_and_a_constant() -> None:
    block = static.Program().global_block()
    block.create_var(name="x", shape=[-1, 3], dtype="float32")
    block.create_var(name="y", shape=[5, 2], dtype="float32")
    out = block.create_var(name="out")
    block.append_op(
        type="concat", inputs={"X": ["x", "y"]}, outputs={"Out": out}, attrs={"axis": 1}
    )
    assert out.shape == (5, 5)


def test_split() -> None:
    x = uniform(2, 6)
    check_op("split", {"X": x}, {"num": 3, "axis": 1}, {"Out": np.split(x, 3, 1)})
    parts = np.split(x, [1, 4], 1)
    check_op("split", {"X": x}, {"sections": [1, -1, 2], "axis": 1}, {"Out": parts})
    inputs = {"X": x, "SectionsTensorList": [ints(1), ints(3), ints(2)]}
    check_op("split", inputs, {"sections": [1, -1, 2], "axis": 1}, {"Out": parts})
    inputs = {"X": x, "AxisTensor": ints(1)}
    check_op("split", inputs, {"num": 3}, {"Out": np.split(x, 3, 1)})
    with pytest.raises(ShapeError, match="not a multiple of 4"):
        check_op("split", {"X": x}, {"num": 4, "axis": 1}, counts={"Out": 4})


def test_parts_of_columns() -> None:
    x, y = uniform(2, 4), uniform(2, 4)
    expected = np.concatenate([x[:, 1:3], y[:, 1:3]], 1)
    attrs = {"start_index": 1, "length": 2}
    check_op("partial_concat", {"X": [x, y]}, attrs, {"Out": expected})
    check_op("partial_sum", {"X": [x, y]}, attrs, {"Out": x[:, 1:3] + y[:, 1:3]})


MODES = {"constant": {"constant_values": 0.5}, "reflect": {}, "edge": {}}


@pytest.mark.parametrize("mode", MODES)
def test_padding(mode: str) -> None:
    x = uniform(1, 2, 3, 3)
    expected = np.pad(x, [(0, 0), (0, 0), (1, 2), (0, 1)], mode, **MODES[mode])
    attrs = {"paddings": [1, 2, 0, 1], "mode": mode, "pad_value": 0.5}
    check_op("pad2d", {"X": x}, attrs, {"Out": expected})
    last = {**attrs, "data_format": "NHWC"}
    check_op("pad2d", {"X": x.transpose(0, 2, 3, 1)}, last, {"Out": expected.transpose(0, 2, 3, 1)})
    attrs.pop("paddings")
    check_op("pad2d", {"X": x, "Paddings": ints(1, 2, 0, 1)}, attrs, {"Out": expected})


def test_padding_of_other_shapes() -> None:
    x = uniform(2, 3)
    attrs = {"paddings": [0, 1, 2, 0], "pad_value": 0.5}
    padded = np.pad(x, [(0, 1), (2, 0)], constant_values=0.5)
    check_op("pad", {"X": x}, attrs, {"Out": padded})
    like = np.pad(x, [(0, 1), (0, 2)], constant_values=1.0)
    check_op("pad_constant_like", {"X": uniform(3, 5), "Y": x}, {"pad_value": 1.0}, {"Out": like})
    volume = uniform(1, 1, 2, 2, 2)
    padded = np.pad(volume, [(0, 0), (0, 0), (0, 1), (1, 0), (2, 0)])
    check_op("pad3d", {"X": volume}, {"paddings": [2, 0, 1, 0, 0, 1]}, {"Out": padded})


def test_cropping() -> None:
    x = uniform(4, 5)
    part = x[1:3, 2:5]
    check_op("crop", {"X": x}, {"shape": [2, 3], "offsets": [1, 2]}, {"Out": part})
    inputs: dict[str, Any] = {"X": x, "Y": uniform(2, 3), "Offsets": ints(1, 2)}
    check_op("crop", inputs, {}, {"Out": part})
    check_op("crop_tensor", {"X": x}, {"shape": [2, -1], "offsets": [1, 2]}, {"Out": part})
    inputs = {"X": x, "Shape": ints(2, 3), "Offsets": ints(1, 2)}
    check_op("crop_tensor", inputs, {"offsets": [-1, -1]}, {"Out": part})
    inputs = {"X": x, "ShapeTensor": [ints(2), ints(3)], "OffsetsTensor": [ints(1), ints(2)]}
    check_op("crop_tensor", inputs, {"shape": [-1, 3], "offsets": [-1, 2]}, {"Out": part})


# -- slices ----------------------------------------------------------------------------------------
def test_slice() -> None:
    x = uniform(3, 4)
    attrs = {"axes": [0, 1], "starts": [1, -3], "ends": [100, -1]}
    check_op("slice", {"Input": x}, attrs, {"Out": x[1:, -3:-1]})
    attrs = {"axes": [0], "starts": [-1], "ends": [10000000], "decrease_axis": [0]}
    check_op("slice", {"Input": x}, attrs, {"Out": x[-1]})
    attrs = {"axes": [0, 1], "starts": [1, 2], "ends": [2, 3], "decrease_axis": [0, 1]}
    check_op("slice", {"Input": x}, attrs, {"Out": x[1:2, 2]})
    inputs: dict[str, Any] = {"Input": x, "StartsTensor": ints(1, 0), "EndsTensor": ints(3, 2)}
    check_op("slice", inputs, {"axes": [0, 1]}, {"Out": x[1:3, :2]})
    inputs = {"Input": x, "StartsTensorList": [ints(1), ints(0)]}
    attrs = {"axes": [0, 1], "starts": [-1, 0], "ends": [3, 2], "infer_flags": [-1, 1]}
    check_op("slice", inputs, attrs, {"Out": x[1:3, :2]})


def test_slice_of_a_batch_knows_lengths_counted_from_the_end() -> None:
    block = static.Program().global_block()
    block.create_var(name="x", shape=[-1, 4], dtype="float32")
    for start, end, expected in ((-3, -1, 2), (-1, 10000000000, 1), (0, 5, -1)):
        out = block.create_var(name=f"out{len(block.ops)}")
        attrs = {"axes": [0], "starts": [start], "ends": [end]}
        block.append_op(type="slice", inputs={"Input": "x"}, outputs={"Out": out}, attrs=attrs)
        assert out.shape == (expected, 4)


def test_strided_slice() -> None:
    x = uniform(4, 5)
    attrs = {"axes": [0, 1], "starts": [0, 4], "ends": [4, 0], "strides": [2, -2]}
    check_op("strided_slice", {"Input": x}, attrs, {"Out": x[0:4:2, 4:0:-2]})
    attrs = {"axes": [1], "starts": [-1], "ends": [-100], "strides": [-1]}
    check_op("strided_slice", {"Input": x}, attrs, {"Out": x[:, ::-1]})
    inputs = {"Input": x, "StartsTensor": ints(1), "EndsTensor": ints(4), "StridesTensor": ints(2)}
    check_op("strided_slice", inputs, {"axes": [0]}, {"Out": x[1:4:2]})


def test_set_value() -> None:
    x, value = uniform(3, 4), uniform(2, 2)
    expected = x.copy()
    expected[1:, 0:4:2] = value
    attrs = {"axes": [0, 1], "starts": [1, 0], "ends": [3, 4], "steps": [1, 2]}
    check_op("set_value", {"Input": x, "ValueTensor": value}, attrs, {"Out": expected})
    expected = x.copy()
    expected[1] = 7.0
    attrs = {"axes": [0], "starts": [1], "ends": [2], "steps": [1], "decrease_axes": [0]}
    attrs |= {"shape": [1], "fp32_values": [7.0], "dtype": 5}
    check_op("set_value", {"Input": x}, attrs, {"Out": expected})


# -- indices ---------------------------------------------------------------------------------------
def test_gathering() -> None:
    x = uniform(3, 4)
    index = np.array([2, 0, 2], "int64")
    check_op("gather", {"X": x, "Index": index}, {}, {"Out": x[index]})
    check_op("gather", {"X": x, "Index": index[:2]}, {"overwrite": True}, {"Out": x[index[:2]]})
    check_op("gather", {"X": x, "Index": index}, {"axis": 1}, {"Out": x[:, index]})
    check_op("index_select", {"X": x, "Index": index}, {"dim": 1}, {"Out": x[:, index]})
    pairs = np.array([[0, 1], [2, 3], [0, 1]], "int64")
    check_op("gather_nd", {"X": x, "Index": pairs}, {}, {"Out": x[pairs[:, 0], pairs[:, 1]]})
    check_op("gather_nd", {"X": x, "Index": pairs[:, :1] % 3}, {}, {"Out": x[pairs[:, 0]]})
    columns = RNG.integers(0, 4, (3, 2))
    taken = np.take_along_axis(x, columns, 1)
    check_op("index_sample", {"X": x, "Index": columns}, {}, {"Out": taken})
    check_op("take_along_axis", {"Input": x, "Index": columns}, {"Axis": 1}, {"Result": taken})
    ids = np.array([[1], [0], [1]], "int32")
    y = uniform(3, 4)
    check_op("multiplex", {"Ids": ids, "X": [x, y]}, {}, {"Out": np.where(ids == 0, x, y)})


def test_gather_with_overwrite_keeps_the_last_gradient_of_a_row() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        block = main.global_block()
        x = block.create_var(name="x", shape=[2, 1], dtype="float64", is_data=True)
        index = block.create_var(name="i", shape=[3], dtype="int64", is_data=True)
        weight = block.create_var(name="w", shape=[3, 1], dtype="float64", is_data=True)
        rows = static.layers.gather(x, index)
        loss = static.layers.reduce_sum(static.layers.elementwise_mul(rows, weight))
        grads = static.gradients([loss], [x])
    feed = {"x": uniform(2, 1), "i": np.array([1, 1, 0]), "w": np.array([[3.0], [5.0], [7.0]])}
    found = static.Executor().run(main, feed=feed, fetch_list=grads)
    np.testing.assert_array_equal(found[0], [[7.0], [5.0]])


def test_scattering() -> None:
    x, updates = uniform(4, 2), uniform(3, 2)
    ids = np.array([2, 0, 3], "int64")
    expected = x.copy()
    expected[ids] = updates
    check_op("scatter", {"X": x, "Ids": ids, "Updates": updates}, {}, {"Out": expected})
    ids = np.array([2, 0, 2], "int64")
    expected = x.copy()
    expected[ids] = 0
    np.add.at(expected, ids, updates)
    inputs = {"X": x, "Ids": ids, "Updates": updates}
    check_op("scatter", inputs, {"overwrite": False}, {"Out": expected})
    expected = x.copy()
    np.add.at(expected, ids, updates)
    inputs = {"X": x, "Index": ids[:, None], "Updates": updates}
    check_op("scatter_nd_add", inputs, {}, {"Out": expected})
    inputs = {"X": x, "Index": ids, "AddValue": updates}
    check_op("index_add", inputs, {"axis": 0}, {"Out": expected})
    index, value = np.array([[1], [0], [1], [0]]), uniform(4, 1)
    expected = x.copy()
    np.put_along_axis(expected, index, value, 1)
    inputs = {"Input": x, "Index": index, "Value": value}
    check_op("put_along_axis", inputs, {"Axis": 1}, {"Result": expected})
    expected = x.copy()
    for row, column in enumerate(index[:, 0]):
        expected[row, column] += value[row, 0]
    check_op("put_along_axis", inputs, {"Axis": 1, "Reduce": "add"}, {"Result": expected})


# -- searching and sorting -------------------------------------------------------------------------
def test_extremes_and_order() -> None:
    x = apart(3, 4)
    check_op("arg_max", {"X": x}, {"axis": 1}, {"Out": x.argmax(1)})
    check_op("arg_max", {"X": x}, {"axis": 0, "keepdims": True}, {"Out": x.argmax(0)[None]})
    check_op("arg_min", {"X": x}, {"axis": -1, "dtype": 2}, {"Out": x.argmin(1)})
    check_op("arg_min", {"X": x}, {"flatten": True}, {"Out": np.array(x.argmin())})
    outputs = {"Out": np.sort(x, 0), "Indices": np.argsort(x, 0)}
    check_op("argsort", {"X": x}, {"axis": 0}, outputs)
    order = np.argsort(-x, 1)
    outputs = {"Out": np.take_along_axis(x, order, 1), "Indices": order}
    check_op("argsort", {"X": x}, {"descending": True}, outputs)
    top = {"Out": outputs["Out"][:, :2], "Indices": order[:, :2]}
    check_op("top_k", {"X": x}, {"k": 2}, top)
    check_op("top_k", {"X": x, "K": ints(2)}, {}, top)
    check_op("top_k_v2", {"X": x}, {"k": 2}, top)
    low = {"Out": np.sort(x, 0)[:1], "Indices": np.argsort(x, 0)[:1]}
    check_op("top_k_v2", {"X": x}, {"k": 1, "axis": 0, "largest": False}, low)
    second = {"Out": np.sort(x, 1)[:, 1], "Indices": np.argsort(x, 1)[:, 1]}
    check_op("kthvalue", {"X": x}, {"k": 2}, second)
    with pytest.raises(ShapeError, match="only 4 elements"):
        check_op("top_k", {"X": x}, {"k": 5}, top)
    edges, values = np.array([0.1, 0.5, 0.9]), np.array([0.5, 0.95])
    inputs = {"SortedSequence": edges, "Values": values}
    expected = np.searchsorted(edges, values)
    check_op("searchsorted", inputs, {}, {"Out": expected}, grad_of=[])


def test_conditions() -> None:
    x, y = uniform(2, 3), uniform(2, 3)
    condition = x > 0
    inputs = {"Condition": condition, "X": x, "Y": y}
    check_op("where", inputs, {}, {"Out": np.where(condition, x, y)})
    check_op("where_index", {"Condition": condition}, {}, {"Out": np.argwhere(condition)})
    check_op("masked_select", {"X": x, "Mask": condition}, {}, {"Y": x[condition]})


def test_unique() -> None:
    x = np.array([2, 3, 3, 1, 5, 3], "int64")
    outputs = {"Out": [np.array([2, 3, 1, 5])], "Index": [np.array([0, 1, 1, 2, 3, 1])]}
    check_op("unique", {"X": x}, {"dtype": 2}, outputs)
    counted = {**outputs, "Count": [np.array([1, 3, 1, 1])]}
    check_op("unique_with_counts", {"X": x}, {"dtype": 3}, counted)
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    outputs = {"Out": values, "Indices": first, "Index": inverse, "Counts": counts}
    check_op("unique", {"X": x}, {"is_sorted": True, "dtype": 3}, outputs)
    check_op("histogram", {"X": x}, {"bins": 2, "min": 1, "max": 5}, {"Out": [np.array([2, 4])]})


def test_codes() -> None:
    x = np.array([[1], [3], [0]], "int64")
    check_op("one_hot", {"X": x}, {"depth": 4}, {"Out": np.eye(4)[x[:, 0]]})
    check_op("one_hot", {"X": x, "depth_tensor": ints(4)}, {}, {"Out": np.eye(4)[x[:, 0]]})
    check_op("one_hot_v2", {"X": x}, {"depth": 4}, {"Out": np.eye(4)[x]})
    outside = np.array([[1], [7], [-1]], "int64")
    expected = np.array([[0, 1], [0, 0], [0, 0]])
    attrs = {"depth": 2, "allow_out_of_range": True}
    check_op("one_hot", {"X": outside}, attrs, {"Out": expected})
    x = np.array([[1], [6], [12], [19]], "int64")
    attrs = {"index_num": 20, "nshards": 2, "shard_id": 1, "ignore_value": -1}
    check_op("shard_index", {"X": x}, attrs, {"Out": [np.array([[-1], [-1], [2], [9]])]})
