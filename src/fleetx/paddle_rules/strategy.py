"""The strategy of Paddle 2.x, with Paddle's rules.

A value of the wrong type prints a warning and is ignored; lists are appended to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fleetx.fleet.strategy import distributed_strategy as core
from fleetx.paddle_rules.paddle_policy import PADDLE
from fleetx.static.run.flags import set_flags
from fleetx.step.settings import Configs, Field


class DistributedStrategy(core.DistributedStrategy):
    """Techniques and their settings."""

    policy = PADDLE
    # In Paddle, `auto` is active only if nothing else was set on any strategy of the process.
    _only_auto_was_set: ClassVar[bool] = True

    def _assign(self, field: Field[Any], value: Any) -> None:
        if field.name != "auto":
            DistributedStrategy._only_auto_was_set = False
        try:
            checked = field.check(value, bool_is_int=True)
        except TypeError as error:
            if field.name in ("a_sync", "adam_d2sum"):
                raise ValueError(
                    "The type of `flag` is invalid, expected type is bool, but received "
                    f"{type(value)}"
                ) from error
            if field.name in ("fp16_allreduce", "last_comm_group_size_MB"):
                raise
            print(f"WARNING: {field.name} should have value of {field.kind} type")
            return
        self._keep(field, checked)

    def _assign_configs(self, configs: Configs, values: Mapping[str, Any]) -> None:
        DistributedStrategy._only_auto_was_set = False
        # Assigning a list twice appends.
        configs.assign(values, extend=True, unknown=AssertionError)

    def _take(self, name: str, source: Any) -> None:
        DistributedStrategy._only_auto_was_set = False
        super()._take(name, source)

    def is_strict_auto(self) -> bool:
        """Return whether `auto` is active: it is on, and nothing else was set."""
        return self.auto and DistributedStrategy._only_auto_was_set

    _is_strict_auto = is_strict_auto

    def _enable_env(self) -> None:
        set_flags(
            {
                "FLAGS_cudnn_batchnorm_spatial_persistent": self.cudnn_batchnorm_spatial_persistent,
                "FLAGS_conv_workspace_size_limit": self.conv_workspace_size_limit,
                "FLAGS_cudnn_exhaustive_search": self.cudnn_exhaustive_search,
                "FLAGS_sync_nccl_allreduce": self.sync_nccl_allreduce,
                "FLAGS_fuse_parameter_memory_size": self.fuse_grad_size_in_MB,
                "FLAGS_fuse_parameter_groups_size": self._fuse_grad_size_in_TFLOPS,
            }
        )
