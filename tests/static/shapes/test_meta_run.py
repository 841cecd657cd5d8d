"""Shapes are inferred without loading torch's compiler, and torch is left as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleetx import torch_private
from fleetx.static.shapes.meta_run import without_loading_dynamo

# Ops whose kernels for meta tensors are decompositions.
PROGRAM = """
import sys

from fleetx.static import layers

x, label = layers.data("x", [3, 8, 8]), layers.data("label", [1], dtype="int64")
hidden = layers.dropout(layers.pool2d(x, 2, pool_stride=2), 0.1)
hidden = layers.cumsum(layers.layer_norm(layers.fc(hidden, 4)), axis=1)
layers.mean(layers.softmax_with_cross_entropy(hidden, label))
layers.accuracy(layers.softmax(hidden), label)
assert layers.stack([hidden, hidden]).shape == (2, -1, 4)
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_building_a_program_does_not_load_dynamo() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["False"]


def test_functions_are_left_as_they_were() -> None:
    functions = torch_private.functions_hidden_from_dynamo()
    before = [vars(function).get(torch_private.HIDDEN_AS) for function in functions]
    with without_loading_dynamo():
        pass
    assert functions
    assert [vars(function).get(torch_private.HIDDEN_AS) for function in functions] == before
