"""Rows of sparse tables with every rule: those of a push as the rule says, the others unchanged."""

from __future__ import annotations

import pytest
import torch

from fleetx.ps.tables.rule_update import RuleUpdate
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_spec import (
    SPARSE_OPTIMIZERS,
    InitializerSpec,
    OptimizerSpec,
    SparseTableSpec,
)

SETTINGS = {
    "momentum": {"mu": 0.9, "use_nesterov": True},
    "rmsprop": {"momentum": 0.5, "centered": True},
}


@pytest.mark.parametrize("kind", SPARSE_OPTIMIZERS)
def test_rows_of_a_push_follow_the_rule(kind: str) -> None:
    settings = SETTINGS.get(kind, {})
    table = SparseTable(
        SparseTableSpec(
            name="t",
            dim=3,
            dtype="float64",
            initializer=InitializerSpec(kind="normal"),
            optimizer=OptimizerSpec(kind=kind, rate=0.1, settings=settings),
        )
    )
    ids, other = torch.tensor([4, 9]), torch.tensor([7])
    expected, untouched = table.pull(ids), table.pull(other)
    rule = RuleUpdate(kind, settings)
    state = rule.first_state(expected)
    for step in range(3):
        grads = torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3) + step
        table.push(ids, grads)
        rate = torch.tensor([0.1], dtype=torch.float64)
        values = {"Param": expected, "Grad": grads.clone(), "LearningRate": rate, **state}
        rule([rule.arguments(values)])
    torch.testing.assert_close(table.pull(ids), expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(table.pull(other), untouched)
