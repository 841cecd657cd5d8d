"""The strategy of Paddle 1.x for collective training, and its rules.

`LegacyStrategy` is a BuildStrategy with a few more fields. The functions are the checks of
`minimize`, and the conversion to the DistributedStrategy that training uses.
"""

from __future__ import annotations

import logging
from typing import Any

from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.static.run.compiled_program import BuildStrategy, ExecutionStrategy

logger = logging.getLogger("fleetx.fleet")

_AMP_OPTIMIZERS = ("OptimizerWithMixedPrecision",)


class LegacyStrategy(BuildStrategy):
    """Settings of 1.x collective training: mode, recomputation, mixed precision, communicators."""

    _defaults = {
        **BuildStrategy._defaults,
        "use_local_sgd": False,
        "use_dist_fc": False,
        "dist_fc_config": None,
        "mode": "nccl2",
        "collective_mode": None,
        "nccl_comm_num": 1,
        "forward_recompute": False,
        "recompute_checkpoints": [],
        "use_amp": False,
        "amp_loss_scaling": 2.0**15,
        "exec_strategy": None,
        "_ut4grad_allreduce": False,
    }

    use_local_sgd: bool
    """Average parameters instead of gradients, whenever `fleet.main_program` is run."""
    use_dist_fc: bool
    dist_fc_config: Any
    mode: str
    """'nccl2' or 'collective'; both run in the same way."""
    collective_mode: str | None
    """None, 'local_sgd' or 'grad_allreduce'."""
    nccl_comm_num: int
    forward_recompute: bool
    recompute_checkpoints: Any
    use_amp: bool
    amp_loss_scaling: float
    exec_strategy: ExecutionStrategy
    use_hierarchical_allreduce: bool
    hierarchical_allreduce_inter_nranks: int
    sync_batch_norm: bool
    fuse_all_reduce_ops: bool | None
    _ut4grad_allreduce: bool

    def __init__(self) -> None:
        super().__init__()
        self.exec_strategy = ExecutionStrategy()


def check_strategy(strategy: LegacyStrategy) -> None:
    """Reject invalid settings."""
    if not isinstance(strategy.recompute_checkpoints, list):
        raise ValueError(
            "DistStrategy.recompute_checkpoints must be a list, not "
            f"{strategy.recompute_checkpoints!r}."
        )


def check_optimizer(strategy: LegacyStrategy, optimizer: Any) -> None:
    """Reject an optimizer that already does what the strategy enables."""
    name = type(optimizer).__name__
    if strategy.forward_recompute:
        if not strategy.recompute_checkpoints:
            raise ValueError(
                "strategy.forward_recompute=True needs strategy.recompute_checkpoints, a list of "
                "names."
            )
        if name in ("RecomputeOptimizer", *_AMP_OPTIMIZERS):
            _conflict(name, "forward_recompute")
    if strategy.use_amp and name in ("DGCMomentumOptimizer", *_AMP_OPTIMIZERS):
        _conflict(name, "mixed_precision")


def _conflict(optimizer: str, setting: str) -> None:
    raise ValueError(f"{optimizer} cannot be used with DistStrategy.{setting}=True.")


def settle_mode(
    strategy: LegacyStrategy, *, uses_dgc: bool = False, uses_lamb: bool = False
) -> None:
    """Set mode and collective_mode as the strategy implies; reject conflicts."""
    if strategy.use_local_sgd:
        strategy.mode, strategy.collective_mode = "collective", "local_sgd"
        _apart("use_local_sgd", use_dgc=uses_dgc, use_dist_fc=strategy.use_dist_fc,
               use_lamb=uses_lamb)  # fmt: skip
    if strategy.use_dist_fc:
        _apart("use_dist_fc", use_dgc=uses_dgc, use_lamb=uses_lamb)
        if strategy.dist_fc_config is None:
            raise AssertionError("use_dist_fc needs DistributedStrategy.dist_fc_config.")
        raise ValueError("use_dist_fc is not supported: set it to False.")
    if strategy._ut4grad_allreduce:
        strategy.mode, strategy.collective_mode = "collective", "grad_allreduce"
        _apart("_ut4grad_allreduce", use_dgc=uses_dgc, use_lamb=uses_lamb)
    if strategy.collective_mode in ("local_sgd", "grad_allreduce"):
        if strategy.mode != "collective":
            raise AssertionError("local_sgd and grad_allreduce need mode='collective'.")
    elif strategy.collective_mode is not None:
        raise ValueError(
            "collective_mode is None, 'local_sgd' or 'grad_allreduce', not "
            f"{strategy.collective_mode!r}."
        )


def _apart(name: str, **others: bool) -> None:
    for other, is_on in others.items():
        if is_on:
            raise AssertionError(f"{name} and {other} cannot be used together.")


def settle_communication(strategy: LegacyStrategy, *, nodes: int) -> None:
    """Adjust communicators to the number of machines, with a warning for each change."""
    if nodes <= 1 and strategy.nccl_comm_num > 1:
        logger.warning("nccl_comm_num is set to 1: the job has only 1 node.")
        strategy.nccl_comm_num = 1
    if nodes <= 1 and strategy.use_hierarchical_allreduce:
        logger.warning("use_hierarchical_allreduce is set to False: the job has only 1 node.")
        strategy.use_hierarchical_allreduce = False
    if strategy.sync_batch_norm:
        if strategy.nccl_comm_num > 1 or strategy.use_hierarchical_allreduce:
            logger.warning(
                "sync_batch_norm would hang with num_threads > 1: num_threads and nccl_comm_num "
                "are set to 1, use_hierarchical_allreduce to False."
            )
        strategy.nccl_comm_num = 1
        strategy.use_hierarchical_allreduce = False


def modern(strategy: LegacyStrategy) -> DistributedStrategy:
    """Return the equivalent DistributedStrategy."""
    result = DistributedStrategy()
    result.amp = strategy.use_amp
    result.amp_configs = {"init_loss_scaling": strategy.amp_loss_scaling}
    result.recompute = strategy.forward_recompute
    if strategy.recompute_checkpoints:
        result.recompute_configs = {"checkpoints": strategy.recompute_checkpoints}
    result.localsgd = strategy.use_local_sgd or strategy.collective_mode == "local_sgd"
    result.localsgd_configs = {"every_run": result.localsgd}
    result.nccl_comm_num = strategy.nccl_comm_num
    result.use_hierarchical_allreduce = strategy.use_hierarchical_allreduce
    result.hierarchical_allreduce_inter_nranks = strategy.hierarchical_allreduce_inter_nranks
    result.sync_batch_norm = strategy.sync_batch_norm
    result.fuse_all_reduce_ops = strategy.fuse_all_reduce_ops is not False
    result.build_strategy = strategy
    result.execution_strategy = strategy.exec_strategy
    return result
