"""What a failed run says: the op, the variable, the index that was outside and how far they go."""

import numpy as np
import pytest

from fleetx import static
from fleetx.ps.wire.messages import unpack_header
from fleetx.static import layers
from fleetx.static.layers.nn import embedding_v2
from fleetx.static.readers.lod_tensor import create_lod_tensor

X = np.linspace(0.1, 0.9, 10, dtype="float32").reshape(2, 5)


def run(build, feed, *, trains=True):
    """Run a network once; return its loss and its parameters before and after."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        loss = build()
        if trains:
            static.optimizer.SGD(0.1).minimize(loss)
    executor = static.Executor()
    with static.scope_guard(static.Scope()):
        executor.run(startup)
        scope = static.global_scope()
        names = [p.name for p in main.all_parameters()]
        before = [scope.find_var(n).value.numpy().copy() for n in names]
        (value,) = executor.run(main, feed=feed, fetch_list=[loss])
        return value, before, [scope.find_var(n).value.numpy().copy() for n in names]


def refusal(build, feed, **more):
    with pytest.raises(static.ExecutionError) as refused:
        run(build, feed, **more)
    return str(refused.value)


def looked_up(is_sparse=False):
    ids = static.data("ids", [-1, 2], "int64")
    attr = static.ParamAttr(name="table")
    return layers.mean(embedding_v2(ids, [24, 3], is_sparse=is_sparse, param_attr=attr))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("outside", [24, -1])
def test_an_id_outside_a_table_is_named(is_sparse, outside):
    said = refusal(lambda: looked_up(is_sparse), {"ids": np.array([[1, 2], [3, outside]])})
    assert "op 'lookup_table_v2' (ids, table ->" in said
    assert (
        f"'ids' holds {outside}, which is outside the table 'table' of 24 rows: indices go from "
        "0 to 23."
    ) in said


@pytest.mark.parametrize("joins", ["concat", "sum"])
def test_of_look_ups_that_run_together_the_right_one_is_named(joins):
    def build():
        slots = [layers.data(f"s{i}", [1], dtype="int64") for i in range(3)]
        attr = static.ParamAttr(name="table")
        rows = [layers.embedding(s, [24, 3], is_sparse=True, param_attr=attr) for s in slots]
        if joins == "concat":
            return layers.mean(layers.concat(rows, axis=1))
        return layers.mean(layers.sums([layers.relu(row) for row in rows]))

    ids = np.array([[1], [2]])
    said = refusal(build, {"s0": ids, "s1": ids + 22, "s2": ids})
    assert "op 'lookup_table' (s1, table ->" in said
    assert "'s1' holds 24" in said


def test_ids_that_are_computed_are_named_too():
    names = []

    def build():
        ids = layers.scale(static.data("ids", [-1, 2], "int64"), 10)
        ids.stop_gradient = True
        names.append(ids.name)
        return layers.mean(embedding_v2(ids, [24, 3], param_attr=static.ParamAttr(name="table")))

    said = refusal(build, {"ids": np.array([[1, 2], [3, 0]])})
    assert f"{names[0]!r} holds 30" in said


def labels():
    return static.data("x", [-1, 5], "float32"), static.data("label", [-1, 1], "int64")


def _gathered(x, label):
    return layers.gather(layers.transpose(x, [1, 0]), label)


@pytest.mark.parametrize("outside", [5, -1])
@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("cross_entropy2", lambda x, y: layers.cross_entropy(layers.softmax(x), y)),
        ("softmax_with_cross_entropy", layers.softmax_with_cross_entropy),
        ("one_hot", lambda x, y: layers.one_hot(y, 5)),
        ("gather", _gathered),
        ("index_sample", layers.index_sample),
        ("nce", lambda x, y: layers.nce(x, y, 5)),
    ],
)
def test_a_label_or_index_outside_is_named(op, layer, outside):
    label = np.array([[1], [outside]])
    said = refusal(lambda: layers.mean(layer(*labels())), {"x": X, "label": label}, trains=False)
    assert f"op '{op}' (" in said
    assert f"'label' holds {outside}, which is outside" in said
    assert "indices go from 0 to 4." in said


def test_a_label_that_is_ignored_is_not_blamed():
    def build():
        x, y = labels()
        return layers.mean(layers.softmax_with_cross_entropy(x, y, ignore_index=-100))

    said = refusal(build, {"x": X, "label": np.array([[-100], [6]])})
    assert "'label' holds 6" in said


def test_fractions_are_not_cut_off_where_a_variable_holds_whole_numbers():
    with pytest.raises(TypeError, match=r"feed of 'ids' holds 1\.5, but .* whole numbers"):
        run(looked_up, {"ids": [[1.5, 2.0]]})
    value, _, _ = run(looked_up, {"ids": [[1.0, 2.0]]})
    assert np.isfinite(value)


# -- empty batches --------------------------------------------------------------------------------
def _picture(layer):
    def build():
        x = layers.data("x", [3, 8, 8])
        y = layers.data("label", [1], dtype="int64")
        return layers.mean(layers.softmax_with_cross_entropy(layers.fc(layer(x), 5), y))

    return build


EMPTY = {"x": np.zeros((0, 3, 8, 8), "float32"), "label": np.zeros((0, 1), "int64")}


@pytest.mark.parametrize(
    "layer",
    [
        lambda x: layers.pool2d(layers.conv2d(x, 4, 3), 2),
        lambda x: layers.fc(x, 6, num_flatten_dims=2),
        lambda x: layers.flatten(x),
        lambda x: layers.reduce_mean(layers.reshape(x, [0, -1, 32]), 1),
    ],
    ids=["conv", "fc", "flatten", "reshape"],
)
def test_an_empty_batch_changes_nothing_and_is_told(layer):
    with pytest.warns(UserWarning, match=r"is empty \('x' has the shape \(0, 3, 8, 8\)\)"):
        value, before, after = run(_picture(layer), EMPTY)
    assert np.isnan(value).all()
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.filterwarnings("ignore:The batch of this training step is empty")
def test_an_op_that_cannot_do_without_values_says_that_there_are_none():
    said = refusal(_picture(layers.batch_norm), EMPTY)
    assert "op 'batch_norm'" in said
    assert "('x' was fed with no values, shape (0, 3, 8, 8))" in said


@pytest.mark.filterwarnings("error")
def test_a_slot_without_ids_is_no_empty_batch():
    def build():
        slot = layers.data("slot", [1], dtype="int64", lod_level=1)
        return layers.mean(layers.sequence_pool(layers.embedding(slot, [24, 3]), "sum"))

    none = create_lod_tensor(np.zeros((0, 1), "int64"), [[0, 0]], static.CPUPlace())
    value, _, _ = run(build, {"slot": none})
    assert value == 0.0


def test_what_other_processes_send_is_not_blamed_on_the_feed():
    def ask(value):
        unpack_header(b"a reply that was cut off")
        return value

    def build(called):
        x = layers.data("x", shape=[5])  # not checked before the run
        block = static.default_main_program().current_block()
        out = block.create_var(name="out", dtype="float32", shape=[-1, 5])
        layers.py_func(called, x, out)
        return out

    wide = np.ones((2, 7), "float32")
    executor = static.Executor(unknown_feed="warn")
    with static.program_guard(static.Program(), static.Program()):
        asked = build(ask)
        with pytest.raises(RuntimeError, match="the header has 24 bytes"):
            executor.run(feed={"x": wide}, fetch_list=[asked])
    with static.program_guard(static.Program(), static.Program()):
        failed = build(lambda value: value.reshape(3, 3))
        with pytest.raises(ValueError, match="but has shape"):
            executor.run(feed={"x": wide}, fetch_list=[failed])
