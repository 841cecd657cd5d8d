"""Records of generated code: names follow expressions, locals are freed, lines know their ops."""

from __future__ import annotations

from typing import Any

import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.lowering.generated_code import (
    Code,
    Function,
    code,
    held,
    listed,
    local,
    render,
    statement,
)


def test_an_expression_has_the_names_of_its_parts() -> None:
    value = code("f1({}, {})", listed([local("v1"), held("H2")]), code("{}.detach()", local("v3")))
    assert value == Code("f1(v1, H2.value, v3.detach())", ("v1", "v3"), ("H2",))


def test_a_statement_tells_reads_from_writes() -> None:
    line = statement(code("keep({})", local("v1")), to=held("H0"))
    assert (line.text, line.reads, line.writes) == ("H0.value = keep(v1)", ("v1",), ())
    assert (line.loads, line.stores) == ((), ("H0",))


def test_locals_are_deleted_behind_their_last_use_but_not_in_front_of_a_block() -> None:
    lines = [
        statement(code("f({})", local("v0")), to=local("v1")),
        statement(code("g({})", local("v0")), to=local("v2")),
        statement(code("if {}:", local("v2")), opens_block=True),
        statement(code("h({})", local("v1")), depth=2),
        statement(Code("return []")),
    ]
    assert Function("step", ["v0"], lines).render() == [
        "def step(v0):",
        "    v1 = f(v0)",
        "    v2 = g(v0); del v0",
        "    if v2:",
        "        h(v1); del v1",
        "    return []",
    ]


@pytest.fixture
def op() -> Any:
    with static.program_guard(static.Program(), static.Program()):
        return layers.relu(layers.data("x", [2])).op


def test_lines_of_all_functions_lead_to_their_ops(op: Any) -> None:
    first = Function("a", [], [statement(Code("1")), statement(Code("2"), (op,))])
    second = Function("b", [], [statement(Code("3"), (op,))])
    source, ops = render([first, second])
    assert {number: source.splitlines()[number - 1].strip() for number in ops} == {3: "2", 6: "3"}
    assert set(ops.values()) == {(op,)}
