"""Settings of ops at the edge of what Paddle documents; the values are those of Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_check import OpProgram, check_op
from run_program import Built

from fleetx import static


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


@pytest.mark.parametrize("shapes", [((5,), (5, 1)), ((5, 1), (5,)), ((5,), (5,))])
def test_rank_loss_mixes_columns_and_vectors(shapes: Any) -> None:
    left, right = numbers(*shapes[0]), numbers(*shapes[1], seed=1)
    label = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    o = left.reshape(5) - right.reshape(5)
    inputs = {"Label": label, "Left": left, "Right": right}
    check_op("rank_loss", inputs, outputs={"Out": np.log1p(np.exp(o)) - label * o})


def test_cross_entropy2_reports_zero_for_ignored_rows() -> None:
    x = np.abs(numbers(3, 4)) + 0.1
    label = np.array([[1], [-100], [3]])
    match = np.array([[x[0, 1]], [0.0], [x[2, 3]]])
    cost = np.array([[-np.log(x[0, 1])], [0.0], [-np.log(x[2, 3])]])
    outputs = {"Y": cost, "MatchX": match}
    check_op("cross_entropy2", {"X": x, "Label": label}, outputs=outputs, grad_from=["Y"])


def test_scale_of_a_resize_wins_over_its_size() -> None:
    x = numbers(1, 2, 4, 3)
    attrs = {"scale": 2.0, "out_h": 5, "out_w": 7, "interp_method": "nearest"}
    out = x.repeat(2, 2).repeat(2, 3)
    check_op("nearest_interp", {"X": x}, {**attrs, "align_corners": False}, {"Out": out})


def test_resizing_bytes_cuts_off_fractions() -> None:
    x = np.array([[[[0, 255], [7, 9]]]], np.uint8)
    attrs = {"out_h": 2, "out_w": 3, "align_corners": True, "interp_method": "bilinear"}
    out = np.array([[[[0, 127, 255], [7, 8, 9]]]], np.uint8)
    check_op("bilinear_interp", {"X": x}, attrs, {"Out": out}, grad_of=[])


def test_max_pool_with_index_and_wide_padding() -> None:
    x = numbers(1, 1, 4, 5)
    attrs = {"ksize": [3, 3], "strides": [3, 3], "paddings": [2, 2]}
    found = check_op("max_pool2d_with_index", {"X": x}, attrs, grad_from=["Out"])
    wide = np.pad(x[0, 0], 2, constant_values=-np.inf)
    tiles = [[wide[i : i + 3, j : j + 3].max() for j in (0, 3, 6)] for i in (0, 3)]
    np.testing.assert_array_equal(found["Out"][0][0, 0], tiles)
    np.testing.assert_array_equal(x.reshape(-1)[found["Mask"][0][0, 0]], tiles)


@pytest.mark.parametrize(
    ("start", "end", "step", "wanted"),
    [(7, -1, -1, slice(None, None, -1)), (5, -1, -2, slice(5, None, -2)),
     (6, 0, -2, slice(6, 0, -2)),
     (9, -100, -3, slice(None, None, -3)), (-20, 3, 1, slice(0, 3))],
)  # fmt: skip
def test_strided_slice_backwards(start: int, end: int, step: int, wanted: slice) -> None:
    x = numbers(8, 2)
    attrs = {"axes": [0], "starts": [start], "ends": [end], "strides": [step], "infer_flags": [1]}
    check_op("strided_slice", {"Input": x}, attrs, {"Out": x[wanted]})


def test_cos_sim_takes_all_dimensions_but_the_first() -> None:
    x, y = numbers(4, 3, 2), numbers(1, 3, 2, seed=1)
    a, b = x.reshape(4, -1), y.reshape(1, -1)
    x_norm, y_norm = (np.linalg.norm(v, axis=1, keepdims=True) for v in (a, b))
    outputs = {"Out": (a @ b.T) / x_norm / y_norm, "XNorm": x_norm, "YNorm": y_norm}
    check_op("cos_sim", {"X": x, "Y": y}, outputs=outputs, grad_from=["Out"])


def encoding(length: int, width: int) -> np.ndarray:
    half = width // 2
    power = np.arange(half) / (half - 1) if half > 1 else np.ones(1)
    angle = np.arange(length)[:, None] / 10000**power
    return np.concatenate([np.sin(angle), np.cos(angle)], 1)


@pytest.mark.parametrize("width", [2, 6])
def test_position_encoding_of_matrices_and_sequences(width: int) -> None:
    attrs = {"alpha": 0.6, "beta": 0.5}
    x = numbers(2, 5, width)
    out = 0.6 * x + 0.5 * encoding(5, width)
    check_op("add_position_encoding", {"X": x}, attrs, {"Out": out})
    rows = numbers(5, width)
    places = np.concatenate([encoding(2, width), encoding(3, width)])
    outputs = {"Out": 0.6 * rows + 0.5 * places}
    check_op("add_position_encoding", {"X": (rows, [[2, 3]])}, attrs, outputs)


def test_mish_with_a_low_threshold() -> None:
    x = np.array([-3.0, -0.4, 0.2, 2.5])
    soft = np.array([np.exp(-3.0), np.log1p(np.exp(-0.4)), np.log1p(np.exp(0.2)), 2.5])
    outputs = {"Out": x * np.tanh(soft)}
    check_op("mish", {"X": x}, {"threshold": 1.0}, outputs, grad_of=[])


def test_im2sequence_reads_zeros_beyond_the_image() -> None:
    x = numbers(1, 1, 2, 2)
    inputs = {"X": x, "Y": np.array([[2, 3]], np.float32)}
    attrs = {"kernels": [1, 1], "strides": [1, 1], "paddings": [0] * 4, "out_stride": [1, 1]}
    (a, b), (c, d) = x[0, 0]
    out = np.array([[a], [b], [0], [c], [d], [0]])
    check_op("im2sequence", inputs, attrs, {"Out": out})


def lengths_after_concat(axis: int, *inputs: Any) -> list[list[int]]:
    from fleetx import static

    program = OpProgram("concat", {"X": list(inputs)}, {"axis": axis}, {})
    (out,) = static.Executor(static.CPUPlace()).run(
        program.main, feed=program.feeds, fetch_list=program.outputs["Out"], return_numpy=False
    )
    return list(out.recursive_sequence_lengths())


def test_concat_joins_sequences() -> None:
    x = numbers(4, 2)
    assert lengths_after_concat(0, (x, [[1, 3]]), (x, [[2, 2]])) == [[1, 3, 2, 2]]
    assert lengths_after_concat(1, (x, [[1, 3]]), (x, [[1, 3]])) == [[1, 3]]
    assert lengths_after_concat(1, x, (x, [[1, 3]])) == []


def test_intermediate_results_of_a_crf() -> None:
    emission, transition = numbers(3, 2), numbers(4, 2, seed=1)
    label = (np.array([[0], [1], [1]]), [[1, 2]])
    found = check_op(
        "linear_chain_crf",
        {"Emission": (emission, [[1, 2]]), "Transition": transition, "Label": label},
        counts={"Alpha": 1, "EmissionExps": 1, "TransitionExps": 1},
        grad_from=["LogLikelihood"],
    )
    exps = np.exp(emission - emission.max(1, keepdims=True))
    np.testing.assert_allclose(found["EmissionExps"][0], exps)
    np.testing.assert_allclose(found["TransitionExps"][0], np.exp(transition))
    first = np.exp(emission[[0, 1]] + transition[0])
    first /= first.sum(1, keepdims=True)
    second = (first[1] @ np.exp(transition[2:])) * np.exp(emission[2])
    alpha = np.vstack([first, second / second.sum()])
    np.testing.assert_allclose(found["Alpha"][0], alpha)


def test_ctc_returns_its_gradient_too() -> None:
    logits, label = numbers(3, 3), np.array([[1]], np.int32)
    inputs = {"Logits": (logits, [[3]]), "Label": (label, [[1]])}
    found = check_op("warpctc", inputs, counts={"WarpCTCGrad": 1}, grad_from=["Loss"])
    gradient = found["WarpCTCGrad"][0]
    assert gradient.shape == (3, 1, 3)
    # the softmax minus the share of the paths through each class: rows sum to zero
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-12)
    assert (gradient[:, 0, 2] > 0).all()


@pytest.mark.parametrize("activation", ["", "relu"])
def test_fc_in_one_op(activation: str) -> None:
    x, weight, bias = numbers(3, 2, 2), numbers(4, 5, seed=1), numbers(5, seed=2)
    out = x.reshape(3, 4) @ weight + bias
    out = np.maximum(out, 0) if activation else out
    attrs = {"in_num_col_dims": 1, "activation_type": activation}
    check_op("fc", {"Input": x, "W": weight, "Bias": bias}, attrs, {"Out": out})


def test_spatial_pyramid() -> None:
    x = numbers(1, 2, 4, 4)
    quarters = [x[..., i : i + 2, j : j + 2].max((2, 3)) for i in (0, 2) for j in (0, 2)]
    out = np.concatenate([x.max((2, 3)), np.stack(quarters, -1).reshape(1, -1)], 1)
    check_op("spp", {"X": x}, {"pyramid_height": 2, "pooling_type": "max"}, {"Out": out})


def test_unpool_puts_values_back() -> None:
    x, place = numbers(1, 1, 1, 2), np.array([[[[1, 6]]]], np.int32)
    out = np.zeros((1, 1, 2, 4))
    out[0, 0, 0, 1], out[0, 0, 1, 2] = x[0, 0, 0]
    attrs = {"ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0]}
    check_op("unpool", {"X": x, "Indices": place}, attrs, {"Out": out})


def test_conv_shift_goes_round() -> None:
    x, y = numbers(2, 5), numbers(2, 3, seed=1)
    shifts = [np.roll(x, 1 - j, 1) * y[:, j : j + 1] for j in range(3)]
    check_op("conv_shift", {"X": x, "Y": y}, outputs={"Out": sum(shifts)})


def test_precision_and_recall_of_two_classes() -> None:
    inputs = {
        "MaxProbs": np.ones((4, 1), np.float32),
        "Indices": np.array([[0], [0], [1], [1]], np.int32),
        "Labels": np.array([[0], [1], [1], [1]], np.int32),
    }
    states = np.array([[1, 1, 2, 0], [2, 0, 1, 1]], np.float32)
    single = [3 / 4, 5 / 6, 2 * (3 / 4) * (5 / 6) / (3 / 4 + 5 / 6)]
    metrics = np.array([*single, 3 / 4, 3 / 4, 3 / 4])
    outputs = {"BatchMetrics": metrics, "AccumMetrics": metrics, "AccumStatesInfo": states}
    check_op("precision_recall", inputs, {"class_number": 2}, outputs)


def test_random_crop_draws_as_paddle_does() -> None:
    """The pieces begin where they begin in Paddle 1.8.5, in the first run and in later ones."""
    x = np.arange(2 * 3 * 7 * 9, dtype="float32").reshape(2, 3, 7, 9)
    wanted = [
        [3, 73, 154, 220, 289, 347],
        [27, 81, 162, 216, 289, 334],
        [0, 72, 149, 192, 282, 355],
    ]
    with static.program_guard(static.Program(), static.Program()):
        out = static.layers.random_crop(static.data("x", x.shape), [3, 4], seed=7)
        with static.scope_guard(static.Scope()):
            runs = [static.Executor().run(feed={"x": x}, fetch_list=[out])[0] for _ in wanted]
    assert out.shape == (2, 3, 3, 4)
    np.testing.assert_array_equal([run[:, :, 0, 0].reshape(-1) for run in runs], wanted)


@pytest.mark.parametrize(("start", "length"), [(-1, 3), (-2, 2), (0, 3), (1, 2), (2, 1), (-3, 7)])
def test_sequence_conv_with_rows_for_the_ends(start: int, length: int) -> None:
    x, lengths, before = numbers(8, 2), [1, 4, 3], max(0, -start)
    padding = numbers(before + max(0, start + length - 1), 2, seed=1)
    weight = numbers(length * 2, 3, seed=2)
    rows, first = [], 0
    for size in lengths:
        part = x[first : first + size]
        for i in range(size):
            window = range(i + start, i + start + length)
            row = [
                padding[before + j]
                if j < 0
                else part[j]
                if j < size
                else padding[before + j - size]
                for j in window
            ]
            rows.append(np.concatenate(row))
        first += size
    attrs = {"contextStart": start, "contextLength": length, "contextStride": 1}
    inputs = {"X": (x, [lengths]), "PaddingData": padding, "Filter": weight}
    outputs = {"Out": np.array(rows) @ weight}
    check_op("sequence_conv", inputs, {**attrs, "paddingTrainable": True}, outputs)


def test_sequence_conv_refuses_rows_of_another_shape() -> None:
    inputs = {"X": (numbers(3, 2), [[3]]), "PaddingData": numbers(1, 2), "Filter": numbers(6, 3)}
    attrs = {"contextStart": -1, "contextLength": 3, "paddingTrainable": True}
    with pytest.raises(ValueError, match="PaddingData of sequence_conv"):
        check_op("sequence_conv", inputs, attrs)


@pytest.mark.parametrize(("step", "wanted"), [(3.0, "momentum"), (12.0, "sgd")])
def test_dgc_momentum_divides_by_the_number_of_workers(step: float, wanted: str) -> None:
    param, grad, velocity = (numbers(3, 2, seed=i) for i in range(3))
    inputs = {"Param": param, "Grad": grad, "Velocity": velocity, "LearningRate": np.array([0.1])}
    inputs |= {"current_step": np.array([step]), "nranks": np.array([4.0])}
    new = {"momentum": 0.5 * velocity + grad / 4, "sgd": velocity}
    step_of = {"momentum": 0.1 * new["momentum"], "sgd": 0.1 * grad / 4}
    outputs = {"ParamOut": param - step_of[wanted], "VelocityOut": new[wanted]}
    attrs = {"mu": 0.5, "rampup_begin_step": 10.0}
    check_op("dgc_momentum", inputs, attrs, outputs, grad_of=[])
    with pytest.raises(ValueError, match="nranks of dgc_momentum is 1"):
        check_op("dgc_momentum", {**inputs, "nranks": np.array([1.0])}, attrs, grad_of=[])


def test_reverse_takes_a_dimension_named_twice_once() -> None:
    x = numbers(2, 3)
    check_op("reverse", {"X": x}, {"axis": [-1, 1]}, {"Out": x[:, ::-1]})


def test_one_element_of_a_resized_axis_is_the_first():
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    attrs = {"out_h": 1, "out_w": 4, "align_corners": False, "align_mode": 0}
    check_op("bilinear_interp", {"X": x}, attrs, {"Out": x[:, :, :1]})
    check_op("nearest_interp", {"X": x}, attrs, {"Out": x[:, :, :1]})


def test_matched_probabilities_keep_a_last_dimension():
    x, label = np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([1, 0])
    outputs = {"Y": -np.log([0.75, 0.5]), "MatchX": np.array([[0.75], [0.5]])}
    check_op(
        "cross_entropy2", {"X": x, "Label": label}, {}, outputs, counts={"MatchX": 1}, grad_of=[]
    )


@pytest.mark.parametrize("transpose", [False, True])
def test_heads_of_a_product_stand_side_by_side(transpose: bool) -> None:
    x, y = numbers(2, 3, 8), numbers(2, 8, 5, seed=1)
    parts = zip(np.split(x, 4, -1), np.split(y, 4, -2), strict=True)
    out = np.concatenate([a @ b for a, b in parts], -1)
    given = {"X": x.swapaxes(1, 2), "Y": y.swapaxes(1, 2)} if transpose else {"X": x, "Y": y}
    attrs = {"transpose_X": transpose, "transpose_Y": transpose, "head_number": 4}
    check_op("matmul", given, attrs, {"Out": out})
    y = numbers(2, 2, 12, seed=2)  # as many rows as a part of X has columns
    parts = zip(np.split(x, 4, -1), np.split(y, 4, -1), strict=True)
    out = np.concatenate([a @ b for a, b in parts], -1)
    check_op("matmul", {"X": x, "Y": y}, {"head_number": 4}, {"Out": out})
    with pytest.raises(static.errors.ShapeError, match="not 3 parts that fit Y"):
        OpProgram("matmul", {"X": x, "Y": y}, {"head_number": 3}, {})


def test_a_total_weight_without_a_mean_is_zero() -> None:
    x, label = numbers(3, 4), np.array([1, 0, 2])
    outputs = {"Out": -x[[0, 1, 2], label], "Total_weight": np.zeros(1)}
    inputs, counts = {"X": x, "Label": label}, {"Total_weight": 1}
    attrs = {"reduction": "none"}
    check_op("nll_loss", inputs, attrs, outputs, counts=counts, grad_from=["Out"])


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_copied_and_a_left_over_dimension_in_one_shape(kind: Any) -> None:
    x = numbers(10, 2, 6)
    attrs = {"shape": kind((10, 0, 3, -1))}
    check_op("reshape2", {"X": x}, attrs, {"Out": x.reshape(10, 2, 3, 2)}, grad_of=[])


def test_classes_are_a_column() -> None:
    with pytest.raises(static.errors.ShapeError, match="2 dimensions or more"):
        OpProgram("one_hot", {"X": np.array([1, 0])}, {"depth": 3}, {})


def computed(type: str, inputs: Any, attrs: Any, slot: str, count: int = 1) -> list[np.ndarray]:
    program = OpProgram(type, inputs, attrs, {slot: count})
    return program.run(program.outputs[slot])


@pytest.mark.parametrize("last", [slice(None), slice(-1, 0, -1)])
def test_an_index_that_is_computed_may_be_the_last_one(last: slice) -> None:
    x = numbers(3, 4)

    def pick(x: Any) -> Any:
        return x[static.layers.fill_constant([1], "int32", -1), last]

    (found,) = Built(pick, {"x": x}).run()
    np.testing.assert_array_equal(found, x[-1, last])


def test_sizes_and_weights_of_a_larger_batch_are_left_over() -> None:
    x, sizes = numbers(1, 2, 4, 5), np.array([[8.0, 10.0], [5.0, 8.0]])
    attrs = {"kernels": [2, 1], "strides": [2, 1], "out_stride": [2, 2], "paddings": [0, 0, 0, 0]}
    one, both = (
        computed("im2sequence", {"X": x, "Y": y}, attrs, "Out")[0] for y in (sizes[:1], sizes)
    )
    np.testing.assert_array_equal(one, both)

    inputs = {"Input": numbers(2, 3), "Label": np.array([[1], [0]]), "Weight": numbers(4, 3)}
    weights = {"SampleWeight": np.array([[1.0], [2.0], [3.0]])}
    attrs = {"num_total_classes": 4, "num_neg_samples": 2, "custom_neg_classes": [2, 3]}
    plain, weighted = (
        computed("nce", {**inputs, **more}, attrs, "Cost")[0] for more in ({}, weights)
    )
    np.testing.assert_allclose(weighted, plain * [[1], [2]])


def test_an_open_gate_of_gru_leaves_out_what_paddle_leaves_out() -> None:
    # The update gate is sigmoid(40): the old state stays, but for 1 - sigmoid(13).
    x, state = np.array([[40.0, 0.0, 5.0]]), np.array([[2.0]])
    inputs = {"Input": (x, [[1]]), "H0": state, "Weight": np.zeros((1, 3))}
    (found,) = computed("gru", inputs, {"origin_mode": True}, "Hidden")
    gate = 1 / (1 + np.exp(-13.0))
    np.testing.assert_allclose(found, gate * state + (1 - gate) * np.tanh(5.0), rtol=1e-12)


def test_ids_are_divided_by_their_remainder() -> None:
    ids = [np.array([[0], [2], [2], [3]]), np.array([[5], [6], [3]])]
    found = computed("split_ids", {"Ids": ids}, {}, "Out", count=3)
    assert [out.reshape(-1).tolist() for out in found] == [[0, 3, 6], [], [2, 5]]
