"""What type checkers know about a script: checked by mypy in `make lint`, never run."""

from typing import assert_type

from torch import nn

from fleetx import fleet
from fleetx.fleet import DistributedStrategy


class Network(nn.Module):
    def answer(self) -> int:
        return 42


def distributed_model_keeps_the_class() -> None:
    model = fleet.distributed_model(Network())
    assert_type(model, Network)
    assert_type(model.answer(), int)


def a_misspelt_field_of_the_strategy_is_an_error() -> None:
    strategy = DistributedStrategy()
    strategy.amp = True
    assert_type(strategy.amp, bool)
    strategy.apm = True  # type: ignore[attr-defined]
    strategy.amp = "yes"  # type: ignore[assignment]
    strategy.amp_configs = {"init_loss_scaling": 2.0}
    strategy.amp_config = {"init_loss_scaling": 2.0}  # type: ignore[attr-defined]
