"""Figures, files and drawings of programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.inspection import (
    description_text,
    drawing,
    program_files,
    searching,
    statistics,
)


@pytest.fixture
def program() -> static.Program:
    """A training program of one layer."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        x = layers.data("x", shape=[4])
        loss = layers.mean(layers.fc(x, 2))
        static.optimizer.Adam(0.1).minimize(loss)
    return main


def test_op_frequencies(program: static.Program) -> None:
    single, pairs = statistics.op_freq_statistic(program)
    counts = dict(single)
    assert counts["mul"] == counts["mean_grad"] == 1
    assert dict(pairs)["mul->elementwise_add"] == 1
    assert [count for _, count in single] == sorted(counts.values(), reverse=True)


def test_memory_of_a_batch() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        layers.scale(layers.data("x", shape=[256]), 2.0)
    low, high, unit = statistics.memory_usage(main, 2048)
    assert unit == "MB"
    assert low < 2.0 < high
    with pytest.raises(ValueError, match="batch_size must be positive, not 0"):
        statistics.memory_usage(main, 0)
    with pytest.raises(TypeError, match="must be a Program, not str"):
        statistics.memory_usage("x", 1)


def test_summary(program: static.Program, capsys: pytest.CaptureFixture[str]) -> None:
    parameters, _ = statistics.summary(program.clone(for_test=True))
    assert parameters == 10
    assert "Total PARAMs: 10" in capsys.readouterr().out


@pytest.mark.parametrize("is_text", [False, True])
def test_program_files(program: static.Program, is_text: bool, tmp_path: Path) -> None:
    path = tmp_path / "model"
    program_files.save_program(program, str(path), is_text)
    again = program_files.load_program(str(path), is_text)
    types = [op.type for op in program.global_block().ops]
    assert [op.type for op in again.global_block().ops] == types
    name = program_files.program_type_trans(str(tmp_path), "model", is_text)
    other = program_files.load_program(str(tmp_path / name), not is_text)
    assert other.to_string() == again.to_string()
    assert program_files.check_pruned_program_vars(program, again)


def test_text_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("blocks: nothing")
    with pytest.raises(ValueError, match="model is not the text of a program"):
        program_files.load_program(str(tmp_path / "model"), is_text=True)


def test_a_program_from_text_trains_as_the_original(program: static.Program) -> None:
    from fleetx.static.protobuf.text import program_from_text

    startup = static.Program()
    startup.random_seed = 3
    with static.program_guard(static.Program(), startup), static.unique_name.guard():
        x = layers.data("x", shape=[4])
        static.optimizer.Adam(0.1).minimize(layers.mean(layers.fc(x, 2)))
    again = program_from_text(program.to_string(), source="text")
    feed = {"x": np.arange(8, dtype="float32").reshape(2, 4)}
    values = []
    for main in (program, again):
        exe = static.Executor()
        with static.scope_guard(static.Scope()):
            exe.run(startup)
            values.append(
                [exe.run(main, feed=feed, fetch_list=["mean_0.tmp_0"])[0] for _ in range(3)]
            )
    np.testing.assert_array_equal(*values)


def test_lists_of_a_program(program: static.Program, tmp_path: Path) -> None:
    program_files.parse_program(program, str(tmp_path))
    assert "'type': 'mul'" in (tmp_path / "ops.log").read_text()
    assert "fc_0.w_0" in (tmp_path / "vars_persistable.log").read_text()
    assert "fc_0.tmp_0" in (tmp_path / "all_vars.log").read_text()


def test_searching(program: static.Program) -> None:
    block = program.global_block()
    index = searching.find_op_by_output_arg(block, "mean_0.tmp_0")
    assert block.ops[index].type == "mean"
    assert searching.find_op_by_input_arg(block, "x") == 0
    assert searching.find_op_by_output_arg(block, "nothing") == -1
    searching.delete_ops(block, [block.ops[index]])
    assert searching.find_op_by_output_arg(block, "mean_0.tmp_0") == -1


def test_distributed_tables() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        ids = layers.data("ids", shape=[1], dtype="int64")
        rows = layers.embedding(ids, size=[10, 2], is_distributed=True, param_attr="table")
        assert searching.find_distributed_lookup_table(main) == "table"
        assert searching.find_distributed_lookup_table_inputs(main, "table") == [ids]
        assert searching.find_distributed_lookup_table_outputs(main, "table") == [rows]
        layers.embedding(ids, size=[10, 2], is_distributed=True, param_attr="other")
    with pytest.raises(RuntimeError, match="read the tables other, table"):
        searching.find_distributed_lookup_table(main)


def test_drawing(program: static.Program, tmp_path: Path) -> None:
    path = tmp_path / "graph.dot"
    drawing.draw_block_graphviz(program.global_block(), highlights=["x"], path=str(path))
    text = path.read_text()
    assert 'label="mul"' in text
    assert "fillcolor=orange" in text
    said = description_text.pprint_program_codes(program)
    assert "mul" in said
    assert "mul_grad" not in said
