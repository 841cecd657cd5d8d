"""Programs as lines of code and as graphs, in the form of Paddle 1.8.5; layers made from ops."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from fleetx import static
from fleetx.static import layers
from fleetx.static.building import generated_layers
from fleetx.static.inspection import description_text, dot_graph, net_drawing, program_code
from fleetx.static.layers import structure
from paddle.fluid.contrib.mixed_precision import fp16_utils


@pytest.fixture
def program() -> static.Program:
    """A training program with sequences."""
    main = static.Program()
    with static.program_guard(main, static.Program()), static.unique_name.guard():
        x = layers.data("x", shape=[4], lod_level=1)
        loss = layers.mean(layers.fc(x, 3, act="relu"))
        static.optimizer.SGD(0.1).minimize(loss)
    return main


def test_code_of_a_program(program: static.Program) -> None:
    out = io.StringIO()
    fluid.transpiler.details.program_utils.program_to_code(program, out)
    lines = out.getvalue().splitlines()
    assert (lines[0], lines[-1]) == ("{ // block 0", "}")
    assert (
        "    persist trainable parameter fc_0.w_0 : "
        "fluid.VarType.LOD_TENSOR.shape(4, 3).astype(VarType.FP32)"
    ) in lines
    assert any(
        line.startswith("    {Out=['fc_0.tmp_0']} = mul(inputs={X=['x'], Y=") for line in lines
    )
    assert program_code.get_indent_space(2, 3) == "      "


def test_code_of_blocks_and_of_ops_without_outputs() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()), static.unique_name.guard():
        flag = layers.fill_constant([1], "bool", True)
        array = layers.create_array("float32")
        with layers.Switch() as switch, switch.case(flag):
            layers.assign(
                layers.fill_constant([1], "float32", 1.0),
                main.global_block().create_var(name="kept", shape=[1], dtype="float32"),
            )
    code = [program_code.op_to_code(op) for op in main.global_block().ops]
    assert any("sub_block = block[1]" in line for line in code)
    assert program_code.variable_to_code(array).endswith(": fluid.VarType.LOD_TENSOR_ARRAY)")


def test_descriptions(program: static.Program) -> None:
    text = fluid.debugger.pprint_program_codes(program)
    assert text.startswith("// block-0  parent--1\n// variables\n")
    assert "LoDTensor x (level=1, tensor(type=float32, shape=[-1, 4]))" in text
    assert "Tensor fc_0.w_0 (tensor(type=float32, shape=[4, 3]))" in text
    assert "fc_0.tmp_0 = mul(X=x, Y=fc_0.w_0) [{" in text
    assert "@GRAD" not in text
    whole = fluid.debugger.pprint_block_codes(program.global_block(), show_backward=True)
    assert "mean_0.tmp_0@GRAD = 1.0 [shape=[1]]" in whole
    assert description_text.repr_data_type(3) == "int64"


def test_other_kinds_of_variables() -> None:
    main = static.Program()
    kinds = static.VarType
    for name, kind in {"rows": kinds.SELECTED_ROWS, "array": kinds.LOD_TENSOR_ARRAY}.items():
        main.global_block().create_var(name=name, shape=[2, 3], dtype="float32", type=kind)
    main.global_block().create_var(name="raw", type=kinds.RAW)
    lines = fluid.debugger.pprint_program_codes(main).splitlines()
    assert "SelectedRows rows (tensor(type=float32, shape=[2, 3]))" in lines
    assert "TensorArray array (level=0, tensor(type=float32, shape=[2, 3]))" in lines
    assert "RAW raw" in lines


def test_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without Graphviz, only the text is written
    preview = fluid.graphviz.GraphPreviewGenerator("net")
    op = preview.add_op("mul", highlight=True)
    preview.add_edge(preview.add_param("w", "FP32"), op)
    preview.add_edge(op, preview.add_arg("out"), highlight=True)
    preview(str(tmp_path / "net.dot"))
    text = (tmp_path / "net.dot").read_text()
    assert text == preview.graph.code()
    assert text.startswith('digraph G {\ntitle = "net"\nlayout="dot";')
    assert f'{op.name} [label=<<B>mul</B>> ,shape="box"' in text
    assert '[color="orange"]' in text
    graph = dot_graph.Graph("ranks")
    rank = graph.rank_group("same", 1)
    node = graph.node("a", "n", rank=rank)
    assert f"{{rank=same;{node.name}}}" in str(graph)
    assert graph.show(str(tmp_path / "r.dot")) == str(tmp_path / "r.pdf")


def test_graphviz_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dot = tmp_path / "dot"
    dot.write_text('#!/bin/sh\n[ "$1" = -Tpdf ] && /bin/cp "$2" "$4"\n')
    dot.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    graph = dot_graph.Graph("t")
    assert Path(graph.compile(str(tmp_path / "g.dot"))).read_text() == str(graph)


def test_a_program_in_a_graph(program: static.Program) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.nodes: list[str] = []
            self.edges: list[tuple[str, str, str]] = []

        def node(self, name: str, **look: str) -> None:
            self.nodes.append(name)

        def edge(self, tail_name: str, head_name: str, label: str) -> None:
            self.edges.append((tail_name, head_name, label))

    graph, origins = Recorder(), {}
    fluid.net_drawer.parse_graph(program, graph, origins)
    assert graph.nodes[0] == "mul_0"
    assert ("Feed", "mul_0", "X(x)") in graph.edges
    assert ("mul_0", "elementwise_add_1", "X(fc_0.tmp_0)") in graph.edges
    assert origins["fc_0.tmp_0"] == "mul_0"
    count = net_drawing.unique_id()
    assert (count(), count()) == (1, 2)


def test_ops_around_an_op(program: static.Program) -> None:
    ops = program.global_block().ops
    add = next(op for op in ops if op.type == "elementwise_add")
    assert fp16_utils.find_true_prev_op(ops, add, "fc_0.tmp_0") is ops[0]
    assert fp16_utils.find_true_prev_op(ops, add, "x") is None
    assert fp16_utils.find_true_post_op(ops, add, "fc_0.tmp_1")[0].type == "relu"
    assert fp16_utils.find_true_post_op(ops, ops[-1], "x") is None
    block = program.global_block().desc
    assert fp16_utils.find_op_index(block, add.desc) == 1
    assert fp16_utils.find_op_index(static.Program().global_block().desc, add.desc) == -1


def test_layers_made_from_ops() -> None:
    make = fluid.layers.layer_function_generator
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = layers.data("x", shape=[2])
        out = make.generate_layer_fn("scale")(x, scale=3.0, act="relu")
        same = make.generate_activation_fn("square")(out)
        named = make.generate_layer_fn("elementwise_add")(x=x, y=same)
    feed = {"x": np.array([[-1.0, 2.0]], "float32")}
    (found,) = static.Executor().run(main, feed=feed, fetch_list=[named])
    assert found.tolist() == [[-1, 38]]
    with pytest.raises(ValueError, match="outputs of split are lists"):
        make.generate_layer_fn("split")


def test_docstrings_made_from_ops() -> None:
    @generated_layers.autodoc("See also relu.")
    def sigmoid(x: Any) -> None:
        pass

    @generated_layers.templatedoc("scale")
    def described() -> None:
        """Do this: ${comment}. ${x_type} ${x_comment}, ${scale_type}, ${unknown}."""

    assert "x: the input X" in sigmoid.__doc__
    assert sigmoid.__doc__.endswith("See also relu.")
    assert "Variable X of scale" in described.__doc__
    assert "${unknown}" in described.__doc__

    @generated_layers.deprecated
    def old() -> int:
        return 1

    with pytest.warns(DeprecationWarning, match="deprecated function old"):
        assert old() == 1


def test_structures() -> None:
    nest = [1, [2, 3]]
    copied = structure.copy_mutable_vars(nest)
    assert copied == nest
    assert copied[1] is not nest[1]
    assert fluid.layers.utils.hold_mutable_vars(nest)
    assert not fluid.layers.utils.hold_mutable_vars([1, 2])
    fluid.layers.math_op_patch.monkey_patch_variable()


def test_half_precision_by_hand() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        layers.mean(layers.fc(layers.data("x", shape=[4]), 2))
    lists = fluid.contrib.mixed_precision.AutoMixedPrecisionLists()
    fp16_utils.rewrite_program(main, lists)
    types = [op.type for op in main.global_block().ops]
    assert types[:3] == ["cast", "cast", "mul"]


def test_loss_scale_by_hand() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        finite = layers.data("finite", [1], append_batch_size=False, dtype="bool")
        scale = layers.create_global_var([1], 8.0, "float32", persistable=True)
        good, bad = (layers.create_global_var([1], 0, "int32", persistable=True) for _ in "gb")
        limits = (layers.fill_constant([1], "int32", n) for n in (2, 1))
        fp16_utils.update_loss_scaling(finite, scale, good, bad, *limits, 2.0, 0.25)
    exe, found = static.Executor(), []
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        for value in (1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0):
            feed = {"finite": np.array([bool(value)])}
            values = exe.run(main, feed=feed, fetch_list=[scale, good, bad])
            found.append(tuple(float(v[0]) for v in values))
    assert found == [
        *((8, 1, 0), (8, 2, 0), (16, 0, 0), (16, 0, 1), (16, 1, 0), (16, 0, 1)),
        *((4, 0, 0), (4, 0, 1), (1, 0, 0), (1, 0, 1), (1, 0, 0)),
    ]
