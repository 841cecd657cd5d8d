"""What a program shows: names, shapes, copies, pruning, text."""

from __future__ import annotations

import pytest
from small_networks import batch, mlp, started

from fleetx import static
from fleetx.static import layers


def test_names_follow_fluid() -> None:
    _, _, loss = mlp()
    names = list(static.default_main_program().global_block().vars)
    assert names[:7] == ["x", "y", "fc_0.w_0", "fc_0.tmp_0", "fc_0.b_0", "fc_0.tmp_1", "fc_0.tmp_2"]
    assert loss.name == "mean_0.tmp_0"


def test_unique_name_guard_restarts_and_prefixes() -> None:
    assert static.unique_name.generate("fc") == "fc_0"
    with static.unique_name.guard():
        assert static.unique_name.generate("fc") == "fc_0"
    with static.unique_name.guard("net/"):
        assert static.unique_name.generate("fc") == "net/fc_0"
    assert static.unique_name.generate("fc") == "fc_1"


def test_batch_dimension_stays_unknown() -> None:
    prediction, cost, loss = mlp()
    assert prediction.shape == (-1, 3)
    assert cost.shape == (-1, 1)
    assert loss.shape == (1,)


def test_reshape_keeps_unknown_batch_and_folds_it_into_others() -> None:
    x = layers.data("x", shape=[4, 6], dtype="float32")
    assert layers.reshape(x, [-1, 24]).shape == (-1, 24)
    assert layers.reshape(x, [-1, 6]).shape == (-1, 6)
    assert layers.reshape(x, [0, 24]).shape == (-1, 24)


def test_shape_error_names_layer_op_and_both_shapes() -> None:
    a = layers.data("a", shape=[3, 4], dtype="float32")
    b = layers.data("b", shape=[5, 6], dtype="float32")
    with pytest.raises(static.ShapeError) as error:
        layers.matmul(a, b)
    message = str(error.value)
    for part in ("matmul", "'a'", "'b'", "(-1, 3, 4)", "(-1, 5, 6)"):
        assert part in message


def test_unknown_op_names_similar_ones() -> None:
    block = static.default_main_program().global_block()
    with pytest.raises(ValueError, match='"relux" has not been registered.*relu'):
        block.append_op(type="relux", inputs={}, outputs={})


def test_clone_for_test_has_no_training_ops_and_test_mode() -> None:
    x = layers.data("x", shape=[8], dtype="float32")
    y = layers.data("y", shape=[1], dtype="int64")
    h = layers.dropout(layers.fc(x, 8, act="relu"), 0.5)
    loss = layers.mean(layers.cross_entropy(layers.fc(h, 3, act="softmax"), y))
    static.optimizer.Adam(0.1).minimize(loss)
    test = static.default_main_program().clone(for_test=True)
    types = [op.type for op in test.global_block().ops]
    assert not any(t.endswith("_grad") or t == "adam" for t in types)
    dropout = next(op for op in test.global_block().ops if op.type == "dropout")
    assert dropout.attr("is_test") is True
    original = static.default_main_program().global_block()
    assert next(op for op in original.ops if op.type == "dropout").attr("is_test") is False
    exe = started()
    first, second = (exe.run(test, feed=batch(), fetch_list=[loss])[0] for _ in range(2))
    assert first == second


def test_a_pruned_program_has_no_variables_of_the_update() -> None:
    x = layers.data("x", shape=[8], dtype="float32")
    loss = layers.mean(layers.batch_norm(layers.dropout(layers.fc(x, 3), 0.5)))
    forward = static.default_main_program().clone()
    static.optimizer.Adam(0.1).minimize(loss)
    main = static.default_main_program()
    main.global_block().create_var(name="unused", shape=[1], dtype="float32", persistable=True)
    pruned = main.prune_backward()
    assert {var.name for var in pruned.list_vars()} == {var.name for var in forward.list_vars()}
    assert [op.type for op in pruned.global_block().ops] == [
        op.type for op in forward.global_block().ops
    ]
    assert {op.attr("is_test") for op in pruned.global_block().ops if op.has_attr("is_test")} == {
        False
    }


def test_clone_is_independent() -> None:
    mlp()
    main = static.default_main_program()
    other = main.clone()
    count = len(main.global_block().ops)
    with static.program_guard(other):
        layers.fill_constant([1], "float32", 1.0)
    assert len(main.global_block().ops) == count
    assert len(other.global_block().ops) == count + 1


def test_prune_keeps_what_the_target_needs() -> None:
    prediction, _, loss = mlp()
    static.optimizer.SGD(0.1).minimize(loss)
    pruned = static.default_main_program()._prune([prediction])
    assert [op.type for op in pruned.global_block().ops] == [
        "mul",
        "elementwise_add",
        "tanh",
        "mul",
        "elementwise_add",
        "softmax",
    ]
    assert not pruned.global_block().has_var("y")
    assert pruned.global_block().has_var("fc_0.w_0")


def test_text_shows_variables_and_ops() -> None:
    mlp()
    text = str(static.default_main_program())
    assert "param fc_0.w_0 : LOD_TENSOR.shape(8, 16).dtype(float32)" in text
    assert "{Out=['fc_0.tmp_0']} = mul(inputs={X=['x'], Y=['fc_0.w_0']})" in text


def test_raw_ops_by_append_op() -> None:
    block = static.default_main_program().global_block()
    x = layers.data("x", shape=[2], dtype="float32")
    out = block.create_var(name="out", dtype="float32")
    block.append_op(type="scale", inputs={"X": x}, outputs={"Out": out}, attrs={"scale": 3.0})
    assert out.shape == (-1, 2)
    feed = {"x": batch(width=2)["x"]}
    (value,) = static.Executor().run(feed=feed, fetch_list=["out"])
    assert value == pytest.approx(feed["x"] * 3)


def test_name_scope_and_device_guard_mark_ops() -> None:
    x = layers.data("x", shape=[2], dtype="float32")
    with static.name_scope("encoder"), static.device_guard("cpu"):
        out = layers.relu(x)
    assert out.op is not None
    assert out.op.attr("op_namescope") == "/encoder/"
    assert out.op.attr("op_device") == "cpu"
    with pytest.raises(ValueError, match="device_guard"), static.device_guard("tpu"):
        pass


def test_program_guard_refuses_other_types() -> None:
    with pytest.raises(TypeError, match="main_program"), static.program_guard("main"):  # type: ignore[arg-type]
        pass


def test_parameter_shared_with_another_shape_is_refused() -> None:
    x = layers.data("x", shape=[8], dtype="float32")
    layers.fc(x, 4, param_attr="shared", bias_attr=False)
    with pytest.raises(ValueError, match="'shared'.*\\(8, 5\\).*\\(8, 4\\)"):
        layers.fc(x, 5, param_attr="shared", bias_attr=False)


def test_every_op_has_the_common_attributes() -> None:
    y = layers.relu(layers.data("x", shape=[8], dtype="float32"))
    op = y.op
    assert {"op_role", "op_role_var", "op_namescope", "op_callstack", "op_device"} <= set(
        op.attr_names
    )
    assert op.attr("op_namescope") == "/"
    assert op.attr("op_role_var") == []
    assert op.attr_type("op_device").name == "STRING"
    assert op.has_attr("op_callstack")
    with pytest.raises(ValueError, match="'relu' has no attribute 'axes'"):
        op.attr("axes")


def test_a_variable_is_not_declared_again_with_other_properties() -> None:
    block = static.Program().global_block()
    block.create_var(name="v", shape=[2], dtype="float32", lod_level=1)
    assert block.create_var(name="v").lod_level == 1
    with pytest.raises(ValueError, match="lod_level"):
        block.create_var(name="v", lod_level=2)
    with pytest.raises(ValueError, match="persistable"):
        block.create_var(name="v", persistable=True)
