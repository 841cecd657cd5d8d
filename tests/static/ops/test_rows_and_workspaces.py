"""Ops on the rows of sparse gradients, and outputs that Paddle's kernels keep for gradients."""

from __future__ import annotations

import numpy as np
import pytest
from op_check import OpProgram

from fleetx import static
from fleetx.static import layers
from fleetx.static.run.scope import Scope
from fleetx.static.run.single_op import SingleOp

CPU = static.CPUPlace()
VALUES = np.array([[1, 2], [-3, 4], [5, -6]], "float32")


def scope_of_rows(*rows: int) -> Scope:
    scope = static.Scope()
    given = scope.var("x").get_selected_rows()
    given.set_rows(rows)
    given.set_height(5)
    given.get_tensor().set(VALUES[: len(rows)], CPU)
    return scope


@pytest.mark.parametrize(
    ("given", "rows", "values"),
    [((3, 1), [3, 1], [[1, 2], [-3, 4]]), ((4, 1, 4), [1, 4], [[-3, 4], [6, -4]])],
)
def test_rows_are_sorted_only_to_merge_them(given, rows, values):
    scope = scope_of_rows(*given)
    SingleOp("merge_selected_rows", X="x", Out="y").run(scope, CPU)
    found = scope.find_var("y").get_selected_rows()
    assert (found.rows(), np.array(found.get_tensor()).tolist()) == (rows, values)


def test_values_of_rows_keep_their_order():
    scope = scope_of_rows(4, 1, 4)
    SingleOp("get_tensor_from_selected_rows", X="x", Out="y").run(scope, CPU)
    np.testing.assert_array_equal(np.array(scope.find_var("y").get_tensor()), VALUES)


def test_an_op_without_a_rule_for_rows_reads_them_as_a_whole():
    scope = scope_of_rows(4, 1, 4)
    SingleOp("tanh", X="x", Out="y").run(scope, CPU)
    whole = np.zeros((5, 2), "float32")
    np.add.at(whole, [4, 1, 4], VALUES)
    found = np.array(scope.find_var("y").get_tensor())
    np.testing.assert_allclose(found, np.tanh(whole), rtol=1e-6)


def test_rows_are_clipped_after_they_are_merged():
    scope = scope_of_rows(4, 1, 4)
    SingleOp("clip", X="x", Out="y", min=-3.5, max=5.0).run(scope, CPU)
    found = scope.find_var("y").get_selected_rows()
    whole = np.zeros((5, 2), "float32")
    np.add.at(whole, found.rows(), np.array(found.get_tensor()))
    np.testing.assert_array_equal(whole[[1, 4]], [[-3, 4], [5, -3.5]])


def test_lazy_adam_on_a_scope_changes_the_rows_of_the_gradient_only():
    scope = scope_of_rows(3, 1)
    shapes = {"p": (5, 2), "m": (5, 2), "v": (5, 2), "b1": (1,), "b2": (1,), "lr": (1,)}
    for name, shape in shapes.items():
        scope.var(name).get_tensor().set(np.full(shape, 0.5, "float32"), CPU)
    names = {"Param": "p", "Moment1": "m", "Moment2": "v", "Beta1Pow": "b1", "Beta2Pow": "b2"}
    outputs = {f"{slot}Out": name for slot, name in names.items()}
    op = SingleOp("adam", Grad="x", LearningRate="lr", lazy_mode=True, **names, **outputs)
    op.run(scope, CPU)
    changed = (np.array(scope.find_var("m").get_tensor()) != 0.5).any(1)
    assert changed.tolist() == [False, True, False, True, False]


def test_decay_of_a_sparse_gradient_has_a_name_of_its_own():
    ids = static.data("ids", [-1, 1], dtype="int64")
    rows = layers.embedding(ids, [6, 3], is_sparse=True, param_attr="table")
    decay = static.regularizer.L2Decay(0.1)
    clip = static.clip.GradientClipByGlobalNorm(1.0)
    optimizer = static.optimizer.SGD(0.1, regularization=decay, grad_clip=clip)
    optimizer.minimize(layers.mean(rows))
    ops = static.default_main_program().global_block().ops
    types = [op.type for op in ops]
    assert types.index("merge_selected_rows") < types.index("get_tensor_from_selected_rows")
    (total,) = [op for op in ops if op.type == "sum" and "@NEWGRAD@" in op.output("Out")[0]]
    assert ops[-1].type == "sgd"
    assert ops[-1].input("Grad") == total.output("Out")


def test_recurrent_ops_return_their_steps_in_order():
    rng = np.random.default_rng(0)
    inputs = {"Input": (rng.normal(size=(6, 6)), [[2, 1, 3]]), "Weight": rng.normal(size=(2, 6))}
    slots = ("BatchGate", "BatchResetHiddenPrev", "BatchHidden", "Hidden")
    program = OpProgram("gru", inputs, {}, dict.fromkeys(slots, 1))
    gate, kept, steps, hidden = program.run([program.outputs[slot][0] for slot in slots])
    order = [3, 0, 2, 4, 1, 5]  # first rows of all sequences, the longest first, then second ones
    np.testing.assert_allclose(steps, hidden[order])
    assert not kept[:3].any()
    update, candidate = gate[:3, :2], gate[:3, 4:]
    np.testing.assert_allclose(steps[:3], update * candidate)


def test_einsum_may_declare_paddles_caches():
    parts = [np.arange(6.0).reshape(2, 3), np.arange(3.0)]
    counts = {"InnerCache": 2, "XShape": 2}
    program = OpProgram("einsum", {"Operands": parts}, {"equation": "ij,j->i"}, counts)
    (found,) = program.run([program.outputs["Out"][0]])
    np.testing.assert_allclose(found, parts[0] @ parts[1])


def test_sizes_of_stacked_elements_are_those_along_the_axis():
    x = static.data("x", [2, 3])
    array = layers.array_write(x, layers.fill_constant([1], "int64", 0))
    joined, sizes = layers.tensor_array_to_tensor(array, axis=1, use_stack=True)
    feed = {"x": np.ones((2, 3), "float32")}
    found = static.Executor().run(feed=feed, fetch_list=[joined, sizes])
    assert (found[0].shape, found[1].tolist()) == ((2, 1, 3), [3])


def test_an_image_without_proposals_has_no_rows():
    scores = np.ones((1, 1, 1, 2), "float32")
    inputs = {
        "Scores": scores,
        "BboxDeltas": np.zeros((1, 4, 1, 2), "float32"),
        "ImInfo": np.array([[20, 20, 1]], "float32"),
        "Anchors": np.tile(np.array([0, 0, 3, 3], "float32"), (1, 2, 1, 1)),
        "Variances": np.ones((1, 2, 1, 4), "float32"),
    }
    program = OpProgram("generate_proposals", inputs, {"min_size": 9.0}, {})
    found = program.run([program.outputs["RpnRois"][0], program.outputs["RpnRoiProbs"][0]])
    assert [value.shape for value in found] == [(0, 4), (0, 1)]


@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_statistics_of_auc_may_have_any_shape(shape):
    inputs = {
        "Predict": np.array([[0.2, 0.8], [0.9, 0.1]], "float32"),
        "Label": np.array([[1], [0]]),
        "StatPos": np.zeros(shape, "int64"),
        "StatNeg": np.zeros(shape, "int64"),
    }
    attrs = {"num_thresholds": 1, "slide_steps": 1}
    program = OpProgram("auc", inputs, attrs, {})
    (positives,) = program.run([program.outputs["StatPosOut"][0]])
    assert positives.ravel().tolist() == [1, 0, 1, 0, 1]


def test_rows_are_divided_by_their_remainder():
    scope = scope_of_rows(4, 1, 3)
    SingleOp("split_ids", Ids="x", Out=["even", "odd"]).run(scope, CPU)
    for name, rows, values in (("even", [4], VALUES[:1]), ("odd", [1, 3], VALUES[1:])):
        found = scope.find_var(name).get_selected_rows()
        assert found.rows() == rows
        np.testing.assert_array_equal(np.array(found.get_tensor()), values)
