"""Hashed ids, instances by tag, shuffled batches, trees of items, ranks, sparse rows."""

import numpy as np
import pytest
import torch
from op_check import OpProgram, check_op

from fleetx import static
from fleetx.static import layers
from fleetx.static.errors import ShapeError
from fleetx.static.layers import contrib_recommendation as contrib


@pytest.fixture(autouse=True)
def _program():
    programs = static.program_guard(static.Program(), static.Program())
    with programs, static.unique_name.guard(), static.scope_guard(static.Scope()):
        yield


def run(feed, fetch):
    executor = static.Executor()
    executor.run(static.default_startup_program())
    return executor.run(feed=feed, fetch_list=fetch)


# The numbers below come from Paddle 1.8.5: up to 3 and from 4 words of 8 bytes, with and without a
# rest of 4 bytes.
HASHES = [
    ([[1, 2], [3, 4], [-5, 2**40]], "int64", 10000)
    + ([[6524, 3896, 1680, 4869], [3640, 7562, 750, 3044], [3231, 4665, 185, 4084]],),
    ([[7]], "int64", 2**40, [[276672930901, 403122602184]]),
    ([list(range(-4, 5))], "int64", 2**31, [[1647574248, 151669903, 21317361]]),
    ([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], "int32", 99991, [[77603, 70111], [13237, 95960]]),
    ([list(range(-5, 6))], "int32", 2**31 - 1, [[404433928, 2058126706]]),
]


@pytest.mark.parametrize(("ids", "dtype", "size", "expected"), HASHES)
def test_hash_has_the_numbers_of_paddle(ids, dtype, size, expected):
    attrs = {"num_hash": len(expected[0]), "mod_by": size}
    out = np.array(expected, dtype)[..., None]
    check_op("hash", {"X": np.array(ids, dtype)}, attrs, {"Out": out})


def test_hash_layer():
    out = layers.hash(static.data("x", [-1, 2], "int64"), 10000, 4)
    assert out.shape == (-1, 4, 1)
    assert out.stop_gradient
    (value,) = run({"x": np.array([[3, 4]])}, [out])
    assert value.reshape(-1).tolist() == [3640, 7562, 750, 3044]


@pytest.mark.parametrize("settings", [{"hash_size": 0}, {"hash_size": 9, "num_hash": 0}])
def test_hash_refuses_sizes_below_one(settings):
    with pytest.raises(ShapeError, match="must be positive"):
        layers.hash(static.data("x", [-1, 2], "int64"), **settings)


def test_batches_are_shuffled_in_the_order_of_paddle():
    # The orders of two batches with the seed 7 in Paddle 1.8.5, and the seeds it goes on with.
    orders = [[1, 4, 7, 6, 5, 3, 8, 9, 0, 2], [8, 4, 5, 3, 6, 7, 9, 1, 0, 2]]
    seeds = [1165762081, 1004798284]
    x = static.data("x", [-1, 1], "float64")
    x.stop_gradient = False
    out = contrib.shuffle_batch(x, 7)
    op = static.default_main_program().global_block().ops[-1]
    (grad,) = static.gradients([layers.reduce_sum(out * out)], [x])
    rows = np.arange(10.0).reshape(10, 1)
    executor = static.Executor()
    fetches = [out, *op.output("ShuffleIdx"), *op.output("SeedOut"), grad]
    for order, seed in zip(orders, seeds, strict=True):
        value, index, following, slope = executor.run(feed={"x": rows}, fetch_list=fetches)
        assert index.tolist() == order
        assert value[order].tolist() == rows.tolist()
        assert following.tolist() == [seed]
        assert slope.tolist() == (2 * rows).tolist()


def test_a_shuffled_batch_takes_the_seed_of_the_program():
    static.default_main_program().random_seed = 11
    contrib.shuffle_batch(static.data("x", [-1, 1]))
    op = static.default_main_program().global_block().ops[-1]
    assert op.attr("startup_seed") == 11


TAGS = (np.array([[1], [2], [3], [2], [4]]), [[2, 1, 2]])


def test_instances_by_tag():
    x = np.random.default_rng(0).normal(size=(3, 4))
    inputs = {"Ins": x, "Ins_tag": TAGS, "Filter_tag": np.array([4, 1])}
    expected = {
        "Out": x[[0, 2]],
        "LossWeight": np.ones((2, 1), "float32"),
        "IndexMap": np.array([[0, 0, 1], [1, 2, 1]]),
    }
    check_op("filter_by_instag", inputs, {"is_lod": False}, expected, grad_from=["Out"])


def test_instances_of_several_rows_by_tag():
    x = np.random.default_rng(0).normal(size=(6, 2))
    inputs = {"Ins": (x, [[1, 3, 2]]), "Ins_tag": TAGS, "Filter_tag": np.array([3])}
    where = np.array([[0, 1, 3]])
    check_op("filter_by_instag", inputs, {"is_lod": True}, {"Out": x[1:4], "IndexMap": where})


def test_no_instance_with_a_tag():
    inputs = {"Ins": np.ones((3, 2)), "Ins_tag": TAGS, "Filter_tag": np.array([9])}
    expected = {"Out": np.full((1, 2), 5.0), "LossWeight": np.zeros((1, 1), "float32")}
    check_op("filter_by_instag", inputs, {"is_lod": False, "out_val_if_empty": 5}, expected)


def test_tags_for_other_instances_are_refused():
    inputs = {"Ins": np.ones((2, 2)), "Ins_tag": TAGS, "Filter_tag": np.array([9])}
    with pytest.raises(RuntimeError, match="2 instances, but tags for 3"):
        check_op("filter_by_instag", inputs, {"is_lod": False})


# item, layer, parent, two children
TREE = np.array(
    [[0, 0, 0, 0, 0], [0, 0, 0, 2, 3], [0, 1, 1, 4, 0], [7, 1, 1, 0, 0], [8, 2, 2, 0, 0]]
)


@pytest.mark.parametrize(("dtype", "number"), [("int32", 2), ("int64", 3)])
def test_children_of_nodes(dtype, number):
    inputs = {"X": np.array([[1], [2], [3], [0]]), "TreeInfo": TREE.astype(dtype)}
    expected = {
        "Child": np.array([[[2, 3]], [[4, 0]], [[0, 0]], [[0, 0]]], dtype),
        "LeafMask": np.array([[[0, 1]], [[1, 0]], [[0, 0]], [[0, 0]]], dtype),
    }
    check_op("tdm_child", inputs, {"child_nums": 2, "dtype": number}, expected)


def test_children_of_unknown_nodes_are_refused():
    with pytest.raises(RuntimeError, match="below 5, not 5"):
        check_op("tdm_child", {"X": np.array([[5]]), "TreeInfo": TREE}, {"child_nums": 2})
    with pytest.raises(ShapeError, match=r"3 \+ 4 columns"):
        check_op("tdm_child", {"X": np.array([[1]]), "TreeInfo": TREE}, {"child_nums": 4})


def tree_parameter(rows):
    return static.ParamAttr(initializer=static.initializer.NumpyArrayInitializer(np.array(rows)))


def test_samples_of_a_tree():
    """Nodes 1 and 2 below the root, 3 to 8 below those; item 2 has a short path."""
    travel = [[1, 3], [2, 8], [2, 0]]
    nodes = [[1], [2], [5], [4], [3], [8], [7], [6]]
    x = static.data("x", [-1, 1], "int64")
    attrs = tree_parameter(travel), tree_parameter(nodes)
    found = contrib.tdm_sampler(x, [1, 4], [2, 6], 3, *attrs, seed=3, tree_dtype="int64")
    assert [v.shape for v in found[0]] == [(-1, 2, 1), (-1, 5, 1)]
    ids = np.repeat([[0], [1], [2]], 200, 0)
    values = run({"x": ids}, [v for group in found for v in group])
    first, second, label_1, label_2, mask_1, mask_2 = (v[..., 0] for v in values)
    path = np.array(travel)[ids[:, 0]]
    assert (first == np.stack([path[:, 0], 3 - path[:, 0]], 1)).all()
    assert (second[:, 0] == path[:, 1]).all()
    reached = path[:, 1] != 0
    negative = second[reached, 1:]
    assert all(len({*row}) == 5 for row in second[reached])
    assert ((negative >= 3) & (negative <= 8)).all()
    # each of the five other nodes is drawn about as often: 4 of 5 in 200 rows
    counts = np.bincount(second[:200, 1:].reshape(-1), minlength=9)
    assert counts[3] == 0
    assert (counts[4:9] > 120).all()
    assert not second[~reached].any()
    assert (label_1 == [1, 0]).all()
    assert (label_2 == np.where(reached[:, None], [1, 0, 0, 0, 0], 0)).all()
    assert mask_1.all()
    assert (mask_2 == reached[:, None]).all()


def test_samples_of_a_tree_as_one_variable_without_the_path():
    x = static.data("x", [-1, 1], "int64")
    attrs = tree_parameter([[1, 3], [1, 4]]), tree_parameter([[1], [2], [3], [4]])
    settings = {"output_positive": False, "output_list": False, "tree_dtype": "int64"}
    found = contrib.tdm_sampler(x, [1, 1], [2, 2], 2, *attrs, dtype="int64", **settings)
    nodes, labels, mask = run({"x": np.array([[0], [1]])}, list(found))
    assert nodes.tolist() == [[2, 4], [2, 3]]
    assert not labels.any()
    assert mask.all()


def test_a_tree_with_too_few_nodes_is_refused():
    x = static.data("x", [-1, 1], "int64")
    with pytest.raises(ValueError, match="at most 1"):
        contrib.tdm_sampler(x, [2], [2], 1)
    with pytest.raises(ValueError, match="one number per layer"):
        contrib.tdm_sampler(x, [2], [2, 3], 1)
    with pytest.raises(ValueError, match="leaf_node_num"):
        contrib.tdm_sampler(x, [1], [2], 2)


def test_a_path_through_another_layer_is_refused():
    inputs = {"X": np.array([[0]]), "Travel": np.array([[3]]), "Layer": np.array([[1], [2]])}
    attrs = {"neg_samples_num_list": [1], "layer_offset_lod": [0, 2]}
    with pytest.raises(RuntimeError, match="node 3 of Travel"):
        check_op("tdm_sampler", inputs, attrs)


def test_rank_attention():
    rng = np.random.default_rng(2)
    x, param = rng.normal(size=(4, 2)), rng.normal(size=(18, 3))
    offset = [
        [1, 1, 0, 2, 1, 0, 0],
        [2, 1, 0, 2, 1, 3, 2],
        [0, 1, 0, 2, 1, 3, 2],
        [3, 0, 0, 3, 3, 0, 0],
    ]
    matrices = param.reshape(3, 3, 2, 3)
    expected = np.zeros((4, 3))
    for i, (own, *others) in enumerate(offset):
        for rank, row in zip(others[::2], others[1::2], strict=True):
            if own and rank:
                expected[i] += x[row] @ matrices[own - 1, rank - 1]
    inputs = {"X": x, "RankOffset": np.array(offset, "int32"), "RankParam": param}
    check_op("rank_attention", inputs, {"MaxRank": 3}, {"Out": expected}, grad_of=["RankParam"])


def test_rank_attention_needs_a_matrix_for_all_pairs_of_ranks():
    x, offset = static.data("x", [-1, 2]), static.data("o", [-1, 7], "int32")
    assert contrib.rank_attention(x, offset, [18, 3], None).shape == (-1, 3)
    with pytest.raises(ShapeError, match="need 18 rows"):
        contrib.rank_attention(x, offset, [17, 3], None)
    with pytest.raises(ShapeError, match="needs 5 columns"):
        contrib.rank_attention(x, offset, [8, 3], None, max_rank=2)


def test_metrics_of_clicks_are_sums_over_batches():
    x, label = static.data("x", [-1, 1]), static.data("y", [-1, 1])
    totals = contrib.ctr_metric_bundle(x, label)
    executor = static.Executor()
    executor.run(static.default_startup_program())
    p, y = np.array([[0.2], [0.9], [0.4]], "float32"), np.array([[0], [1], [1]], "float32")
    for times in (1, 2):
        found = executor.run(feed={"x": p, "y": y}, fetch_list=list(totals))
        sigmoid = 1 / (1 + np.exp(-p))
        sums = [((p - y) ** 2).sum(), abs(p - y).sum(), p.sum(), sigmoid.sum(), y.sum(), 3]
        np.testing.assert_allclose(np.ravel(found), np.array(sums) * times, rtol=1e-6)
    with pytest.raises(ShapeError, match="one shape"):
        contrib.ctr_metric_bundle(x, static.data("z", [-1, 2]))


def test_rows_of_a_sparse_tensor():
    block = static.default_main_program().global_block()
    x = block.create_var(name="rows", dtype="float32", shape=[5, 2], persistable=True)
    merged = layers.merge_selected_rows(x)
    values = layers.get_tensor_from_selected_rows(merged)
    rows = static.global_scope().var("rows").get_selected_rows()
    rows.set_rows([4, 1, 4])
    rows.set_height(5)
    rows.get_tensor().set(np.array([[1, 2], [3, 4], [5, 6]], "float32"), static.CPUPlace())
    (found,) = static.Executor().run(fetch_list=[values])
    assert found.tolist() == [[3, 4], [6, 8]]


def test_a_dense_tensor_is_its_own_merged_form():
    x = np.arange(6.0).reshape(3, 2)
    for op in ("merge_selected_rows", "get_tensor_from_selected_rows"):
        check_op(op, {"X": x}, {}, {"Out": x})


def test_of_fused_functions_the_outer_one_is_named_first():
    x = np.random.default_rng(3).normal(size=(2, 3, 4))
    y = np.random.default_rng(4).normal(size=(3,))
    wide = y[:, None]
    cases = {
        ("relu", "elementwise_add"): (np.maximum(x + wide, 0), x + wide),
        ("elementwise_add", "tanh"): (x + np.tanh(wide), np.tanh(y)),
        ("elementwise_mul", "scale"): (x * 0.3 * wide, 0.3 * y),
    }
    for functors, (out, between) in cases.items():
        attrs = {"axis": 1, "scale": 0.3, "functor_list": [*functors]}
        expected = {"Out": out, "IntermediateOut": between}
        name = "fused_elemwise_activation"
        check_op(name, {"X": x, "Y": y}, attrs, expected, grad_from=["Out"])


@pytest.mark.parametrize("functors", ["relu,tanh", "relu,elementwise_div", "relu"])
def test_unknown_fused_functions_are_refused(functors):
    from fleetx.static.layers.contrib import fused_elemwise_activation

    x = static.data("x", [2, 3])
    with pytest.raises(ValueError, match="functor_list"):
        fused_elemwise_activation(x, x, functors)


def test_ids_are_hashed_on_any_device():
    """The arithmetic is torch's: nothing is read on the CPU."""
    program = OpProgram("hash", {"X": np.array([[1, 2]])}, {"num_hash": 1, "mod_by": 10}, {})
    out = program.definition.fn(
        torch.empty((3, 2), dtype=torch.int64, device="meta"), num_hash=2, mod_by=7
    )
    assert out.shape == (3, 2, 1)
