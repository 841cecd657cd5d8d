"""Sparse gradients: merging, adding, updating; compared with dense gradients."""

import pytest
import torch

from fleetx.kernels.row_gradients import (
    add_scaled_,
    add_up,
    make_rows,
    merge,
    merged,
    rows_of,
    update_rows,
    with_values,
)
from fleetx.kernels.updates import RULES


@pytest.fixture
def grad() -> torch.Tensor:
    ids = torch.tensor([4, 1, 4, 0, 4])
    return make_rows(ids, torch.randn(5, 3, dtype=torch.float64), 6)


def test_merging_keeps_the_gradient(grad: torch.Tensor) -> None:
    ids, values = merge(grad)
    assert sorted(ids.tolist()) == [0, 1, 4]
    torch.testing.assert_close(values, grad.to_dense()[ids])
    torch.testing.assert_close(merged(grad).to_dense(), grad.to_dense())


def test_sums_and_other_values(grad: torch.Tensor) -> None:
    torch.testing.assert_close(add_up([grad, merged(grad)]).to_dense(), 2 * grad.to_dense())
    doubled = with_values(grad, rows_of(grad)[1] * 2)
    torch.testing.assert_close(doubled.to_dense(), 2 * grad.to_dense())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("contiguous", [True, False])
def test_rows_are_added_to_a_table(
    grad: torch.Tensor, dtype: torch.dtype, contiguous: bool
) -> None:
    grad = grad.to(dtype)
    table = torch.ones(3, 6, dtype=dtype).T if not contiguous else torch.ones(6, 3, dtype=dtype)
    add_scaled_(table, grad, -0.5)
    torch.testing.assert_close(table, 1 - 0.5 * grad.to_dense())


def test_an_update_sees_each_row_once(grad: torch.Tensor) -> None:
    table = torch.zeros(6, 3, dtype=torch.float64)
    update_rows([table], grad, lambda parts, values: parts[0].add_(values).add_(1))
    used = torch.tensor([0, 1, 4])
    expected = torch.zeros_like(table)
    expected[used] = grad.to_dense()[used] + 1
    torch.testing.assert_close(table, expected)


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_rules_update_rows_as_the_whole_gradient(kind: str, grad: torch.Tensor) -> None:
    rule = RULES[kind]
    results = []
    for given in (grad, grad.to_dense()):
        tensors = {"Param": torch.ones(6, 3).double(), "Moment": torch.ones(6, 3).double()}
        values = {**tensors, "Grad": given, "LearningRate": torch.tensor([0.1]).double()}
        rule.function(*(values[name] for name in rule.arguments), **rule.settings)
        results.append([tensors["Param"], tensors["Moment"]])
    torch.testing.assert_close(results[0], results[1])
