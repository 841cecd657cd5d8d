"""Parts of variables, as Paddle 1.8.5 divides them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paddle.fluid.transpiler.distribute_transpiler import (
    VarBlock,
    log,
    same_or_split_var,
    slice_variable,
)


@pytest.mark.parametrize(
    ("servers", "least", "expected"),
    [
        (1, 1, ["a:0:700", "b:0:13"]),
        (3, 10, ["a:0:238", "a:1:238", "a:2:224", "b:0:13"]),
        (2, 8192, ["a:0:700", "b:0:13"]),
        (
            8,
            1,
            [*(f"a:{i}:91" for i in range(7)), "a:7:63", *(f"b:{i}:2" for i in range(6)), "b:6:1"],
        ),
    ],
)
def test_parts(
    servers: int, least: int, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    variables = [SimpleNamespace(name="a", shape=(100, 7)), SimpleNamespace(name="b", shape=(13,))]
    assert slice_variable(variables, servers, least) == expected
    log("quiet")
    assert not capsys.readouterr().out


def test_names() -> None:
    assert str(VarBlock("w", 1, 10)) == "w:1:10"
    assert same_or_split_var("w.block0", "w")
    assert same_or_split_var("w", "w")
    assert not same_or_split_var("w1", "w")
