"""Shapes are inferred without loading torch's compiler, and torch is left as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleetx import torch_private
from fleetx.static.shapes.meta_run import without_loading_dynamo

# Ops whose kernels for meta tensors are decompositions.
DECOMPOSED = """
from fleetx.static import layers

x, label = layers.data("x", [3, 8, 8]), layers.data("label", [1], dtype="int64")
hidden = layers.dropout(layers.pool2d(x, 2, pool_stride=2), 0.1)
hidden = layers.cumsum(layers.layer_norm(layers.fc(hidden, 4)), axis=1)
layers.mean(layers.softmax_with_cross_entropy(hidden, label))
layers.accuracy(layers.softmax(hidden), label)
assert layers.stack([hidden, hidden]).shape == (2, -1, 4)
"""
CLASSIFIER = """
from fleetx import static
from fleetx.static import layers

x = static.data("x", [-1, 3, 8, 8])
hidden = layers.batch_norm(layers.conv2d(x, 4, 3), act="relu")
hidden = layers.pool2d(hidden, 2, "max", 2)
scores = layers.fc(hidden, 5, act="softmax")
label = static.data("y", [-1, 1], "int64")
loss = layers.mean(layers.cross_entropy(scores, label))
loss += layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 5), label))
static.optimizer.Momentum(0.1, 0.9).minimize(loss)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "heavy"), [(DECOMPOSED, "torch._dynamo"), (CLASSIFIER, "sympy")]
)
def test_building_a_program_does_not_import(program: str, heavy: str) -> None:
    program += f"\nimport sys\nprint({heavy!r} in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["False"]


def test_functions_are_left_as_they_were() -> None:
    functions = torch_private.functions_hidden_from_dynamo()
    before = [vars(function).get(torch_private.HIDDEN_AS) for function in functions]
    with without_loading_dynamo():
        pass
    assert functions
    assert [vars(function).get(torch_private.HIDDEN_AS) for function in functions] == before
