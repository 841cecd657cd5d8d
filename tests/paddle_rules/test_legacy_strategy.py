"""The strategy of 1.x: its fields, its conflicts, and the equivalent strategy."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fleetx.paddle_rules.strategy_of_1x import (
    LegacyStrategy,
    check_optimizer,
    check_strategy,
    modern,
    settle_communication,
    settle_mode,
)
from fleetx.static import optimizer as optimizers


def made(**fields: Any) -> LegacyStrategy:
    strategy = LegacyStrategy()
    for name, value in fields.items():
        setattr(strategy, name, value)
    return strategy


def test_defaults_and_unknown_fields() -> None:
    strategy = LegacyStrategy()
    assert (strategy.mode, strategy.collective_mode, strategy.nccl_comm_num) == ("nccl2", None, 1)
    assert strategy.amp_loss_scaling == 2**15
    strategy.exec_strategy.num_threads = 2  # type: ignore[attr-defined]
    strategy.recompute_checkpoints.append("x")
    assert LegacyStrategy().recompute_checkpoints == []
    assert LegacyStrategy().exec_strategy.num_threads == 0  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="use_local_sgd"):
        strategy.local_sgd_steps = 4  # type: ignore[attr-defined]


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="must be a list"):
        check_strategy(made(recompute_checkpoints="x"))
    with pytest.raises(ValueError, match="needs strategy.recompute_checkpoints"):
        check_optimizer(made(forward_recompute=True), optimizers.Adam(0.1))


def test_optimizers_that_do_it_already() -> None:
    recompute = optimizers.RecomputeOptimizer(optimizers.Adam(0.1))
    with pytest.raises(
        ValueError, match="RecomputeOptimizer cannot be used with .*forward_recompute"
    ):
        check_optimizer(made(forward_recompute=True, recompute_checkpoints=["x"]), recompute)
    check_optimizer(made(), recompute)


@pytest.mark.parametrize(
    ("fields", "program", "says"),
    [
        ({"use_local_sgd": True}, {"uses_dgc": True}, "use_local_sgd and use_dgc"),
        ({"use_local_sgd": True}, {"uses_lamb": True}, "use_local_sgd and use_lamb"),
        ({"use_local_sgd": True, "use_dist_fc": True}, {}, "use_local_sgd and use_dist_fc"),
        ({"use_dist_fc": True}, {}, "needs DistributedStrategy.dist_fc_config"),
        ({"collective_mode": "grad_allreduce"}, {}, "need mode='collective'"),
    ],
)
def test_what_does_not_go_together(
    fields: dict[str, Any], program: dict[str, bool], says: str
) -> None:
    with pytest.raises(AssertionError, match=says):
        settle_mode(made(**fields), **program)


def test_local_sgd_implies_its_mode() -> None:
    strategy = made(use_local_sgd=True)
    settle_mode(strategy)
    assert (strategy.mode, strategy.collective_mode) == ("collective", "local_sgd")
    with pytest.raises(ValueError, match="'local_sgd' or 'grad_allreduce', not 'ring'"):
        settle_mode(made(collective_mode="ring"))


def test_communication_follows_the_machines() -> None:
    strategy = made(nccl_comm_num=2, use_hierarchical_allreduce=True)
    settle_communication(strategy, nodes=2)
    assert (strategy.nccl_comm_num, strategy.use_hierarchical_allreduce) == (2, True)
    settle_communication(strategy, nodes=1)
    assert (strategy.nccl_comm_num, strategy.use_hierarchical_allreduce) == (1, False)
    strategy = made(nccl_comm_num=2, sync_batch_norm=True)
    settle_communication(strategy, nodes=2)
    assert strategy.nccl_comm_num == 1


def test_in_todays_words() -> None:
    strategy = modern(
        copy.deepcopy(
            made(
                use_amp=True,
                amp_loss_scaling=8.0,
                forward_recompute=True,
                recompute_checkpoints=["a"],
                nccl_comm_num=3,
                fuse_all_reduce_ops=False,
                enable_auto_fusion=True,
            )
        )
    )
    assert strategy.amp
    assert strategy.amp_configs["init_loss_scaling"] == 8.0
    assert strategy.recompute_configs["checkpoints"] == ["a"]
    assert strategy.nccl_comm_num == 3
    assert not strategy.fuse_all_reduce_ops
    assert strategy.build_strategy.enable_auto_fusion
    assert modern(made(use_local_sgd=True)).localsgd
