"""The counts of op types in interop/README.md are those of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from fleetx.static.graph.op_registry import get_op, op_types

INTEROP = Path(__file__).parents[1] / "interop"


def test_op_types_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(INTEROP))
    importlib.import_module("op_families")  # registers the families of cases
    op_cases = importlib.import_module("op_cases")
    coverage = importlib.import_module("op_coverage")
    # Even seeds draw what exists in float32 too.
    drawn = [{case.type for case in op_cases.cases(0, *more)} for more in ((), (op_cases.LATER,))]
    without = coverage.without_a_case()
    text = " ".join((INTEROP / "README.md").read_text(encoding="utf-8").split())
    found = {
        r"registers (\d+) op types": len(set(op_types())),
        r"cases of (\d+) op types per seed": len(drawn[0]),
        r"cases of (\d+) types that only 2.x has": len(drawn[1]),
        r"small programs for (\d+) types": len(coverage.PROGRAMS.split()),
        r"The (\d+) registered types without a case": len(without),
    }
    told = {words: int(re.findall(words, text)[0]) for words in found}
    assert told == found
    assert all(without.values()), "a type has neither a case nor a reason"


def test_gradients_that_are_made_on_demand_are_no_types_of_their_own() -> None:
    before = op_types()
    assert get_op("relu_grad") is get_op("relu_grad")
    assert op_types() == before
