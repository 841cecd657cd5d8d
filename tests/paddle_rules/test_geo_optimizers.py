"""Geo training by `k_steps` of 2.x takes SGD only."""

from __future__ import annotations

from typing import Any

import pytest

import paddle
from paddle.distributed import fleet
from paddle.distributed.fleet.base import role_maker

pytestmark = pytest.mark.usefixtures("fresh_fleet")


def minimize(optimizer: Any, k_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:36001",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "0",
        "TRAINING_ROLE": "TRAINER",
    }.items():
        monkeypatch.setenv(name, value)
    paddle.enable_static()
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        fleet.init(role_maker.PaddleCloudRoleMaker())
        loss = paddle.mean(paddle.static.nn.fc(paddle.static.data("x", [None, 2]), 1))
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        strategy.a_sync_configs = {"k_steps": k_steps}
        fleet.distributed_optimizer(optimizer, strategy).minimize(loss)


def test_another_optimizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'k_steps'] is 10 with Adam, .* SGD only: use SGD"):
        minimize(paddle.optimizer.Adam(0.1), 10, monkeypatch)


def test_sgd_and_asynchronous_training_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    minimize(paddle.optimizer.SGD(0.1), 10, monkeypatch)
    minimize(paddle.optimizer.Adam(0.1), 0, monkeypatch)
