"""What `fleet.explain()` says of bytes whose number is known, and of activations."""

from __future__ import annotations

from fleetx.fleet.collective.explain import Explanation
from fleetx.step.stages import Stage
from fleetx.step.technique import Row

LAYERS = Row(stage=Stage.MEMORY, technique="tensor_parallel", sends_activations=True)
GRADIENTS = Row(stage=Stage.GRAD_SYNC, technique="all-reduce", bytes_sent=2e6)


def test_the_summary_does_not_pass_over_activations() -> None:
    assert "each sends activations per step" in Explanation((LAYERS,), 2).short()
    both = Explanation((LAYERS, GRADIENTS), 4)
    assert "each sends 2.0 MB and activations per step" in both.short()
    assert both.bytes_sent == 2e6
    assert "each sends 2.0 MB per step" in Explanation((GRADIENTS,), 2).short()


def test_the_table_shows_which_technique_sends_activations() -> None:
    lines = str(Explanation((LAYERS, GRADIENTS), 4)).splitlines()
    (layers,) = (line for line in lines if "tensor_parallel" in line)
    (gradients,) = (line for line in lines if "all-reduce" in line)
    assert "activations" in layers
    assert "2.0 MB" in gradients
    assert "activations" not in gradients
