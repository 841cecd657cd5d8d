"""One session, two policies: Paddle's drops conflicts with a warning, FleetX's rejects them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm_start
from fleetx import fleet, static
from fleetx.fleet.session import Fleet
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.paddle_rules import strategy as paddle_rules
from paddle.distributed import fleet as paddle_fleet

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("fresh_fleet", "fresh_graph")


def minimized(strategy: DistributedStrategy, optimizer: Any) -> Fleet:
    session = fleet.init(is_collective=True)
    loss = static.layers.mean(static.layers.fc(static.data("x", [None, 2]), 1))
    session.distributed_optimizer(optimizer, strategy).minimize(loss)
    return session


def with_on(kind: type[DistributedStrategy], *names: str) -> DistributedStrategy:
    strategy = kind()
    for name in names:
        setattr(strategy, name, True)
    return strategy


def test_paddle_drops_what_does_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    strategy = with_on(paddle_rules.DistributedStrategy, "lamb", "lars", "localsgd")
    session = minimized(strategy, static.optimizer.Momentum(0.1, 0.9))
    (said,) = (line.getMessage() for line in caplog.records if "switched off" in line.getMessage())
    assert said == (
        "the strategy's lamb (it needs the inner optimizer to be Adam, not Momentum), localsgd "
        "(there is only one worker) is switched off, as Paddle does."
    )
    assert session._get_applied_meta_list() == ["LarsOptimizer"]
    assert session._get_applied_graph_list() == ["GraphExecutionOptimizer"]
    followed = session._final_strategy()
    assert (followed.lars, followed.lamb, followed.localsgd) == (True, False, False)
    assert strategy.lamb  # the script's own is left alone


def test_fleetx_refuses_and_names_techniques_by_their_switches() -> None:
    both = with_on(fleet.DistributedStrategy, "lamb", "lars")
    with pytest.raises(ValueError, match="both replace the step's update"):
        minimized(both, static.optimizer.Momentum(0.1, 0.9))
    session = minimized(
        with_on(fleet.DistributedStrategy, "lars"), static.optimizer.Momentum(0.1, 0.9)
    )
    assert session._get_applied_meta_list() == ["lars"]
    assert session._get_applied_graph_list() == []


def test_a_variant_that_lars_lacks(caplog: pytest.LogCaptureFixture) -> None:
    momentum = static.optimizer.Momentum(0.1, 0.9, use_nesterov=True)
    with pytest.raises(ValueError, match="lars has no Nesterov variant: set use_nesterov=False"):
        minimized(with_on(fleet.DistributedStrategy, "lars"), momentum)
    session = minimized(with_on(paddle_rules.DistributedStrategy, "lars"), momentum)
    assert "lars has no Nesterov variant; use_nesterov does not act." in caplog.messages
    assert session._get_applied_meta_list() == ["LarsOptimizer"]


def test_paddle_has_its_rules_without_a_strategy_too() -> None:
    paddle_fleet.init(is_collective=True)
    loss = static.layers.mean(static.layers.fc(static.data("x", [None, 2]), 1))
    paddle_fleet.distributed_optimizer(static.optimizer.SGD(0.1)).minimize(loss)
    assert paddle_fleet._get_applied_meta_list() == []
    assert paddle_fleet._get_applied_graph_list() == ["GraphExecutionOptimizer"]


TRAINING = """
import sys
import numpy as np
import torch
from fleetx import fleet, static

strategy = fleet.DistributedStrategy()
strategy.lars = True
fleet.init(is_collective=True, strategy=strategy)
model = fleet.distributed_model(torch.nn.Linear(2, 1))
optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
model(torch.ones(3, 2)).sum().backward()
optimizer.step()

loss = static.layers.mean(static.layers.fc(static.data("x", [None, 2]), 1))
fleet.distributed_optimizer(static.optimizer.Momentum(0.1, 0.9)).minimize(loss)
exe = static.Executor()
exe.run(static.default_startup_program())
exe.run(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[loss])
print(fleet._get_applied_meta_list(), sorted(n for n in sys.modules if "paddle_rules" in n))
"""


@pytest.mark.slow
def test_fleetx_trains_without_loading_paddles_rules() -> None:
    environment = {**os.environ, **warm_start.torch_variables(ROOT / "src", ROOT / "compat")}
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['lars'] []"
