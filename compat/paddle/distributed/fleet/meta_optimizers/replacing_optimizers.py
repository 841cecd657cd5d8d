"""Techniques of Fleet that replace the script's optimizer."""

from typing import Any

from fleetx.static.optimizer import Adam, Lamb, LarsMomentum, Momentum, Optimizer
from fleetx.static.optimizer.dgc_momentum import DGCMomentumOptimizer
from fleetx.static.optimizer.gradient_merge_optimizer import (
    GradientMergeOptimizer as MergedGradients,
)
from paddle.distributed.fleet.meta_optimizers._wrapping import WrappingOptimizer

__all__ = ["DGCOptimizer", "GradientMergeOptimizer", "LambOptimizer", "LarsOptimizer"]


class _Replaced(WrappingOptimizer):
    """A technique of `fleet.distributed_optimizer`, for scripts that create it directly."""

    _how_to_begin = "call _set_basic_info"

    def _settings(self, kind: type[Optimizer]) -> dict[str, Any]:
        """Return the arguments that the new optimizer takes from the script's."""
        if not isinstance(self.inner_opt, kind):
            raise TypeError(
                f"{type(self).__name__} takes a {kind.__name__} optimizer, not "
                f"{type(self.inner_opt).__name__}."
            )
        return self.inner_opt.settings()


class LarsOptimizer(_Replaced):
    """LARS instead of momentum."""

    def _wrap(self) -> Any:
        settings = self._settings(Momentum)
        del settings["use_nesterov"]
        return LarsMomentum(**settings, **self.user_defined_strategy.lars_configs)


class LambOptimizer(_Replaced):
    """LAMB instead of Adam."""

    def _wrap(self) -> Any:
        settings, configs = self._settings(Adam), self.user_defined_strategy.lamb_configs
        excluded = tuple(configs["exclude_from_weight_decay"])
        wanted = ("learning_rate", "beta1", "beta2", "epsilon", "parameter_list")
        wanted += ("regularization", "grad_clip")
        return Lamb(
            **{name: settings[name] for name in wanted if name in settings},
            lamb_weight_decay=configs["lamb_weight_decay"],
            exclude_from_weight_decay_fn=lambda param: param.name.endswith(excluded),
        )


class DGCOptimizer(_Replaced):
    """Deep gradient compression instead of momentum."""

    def _wrap(self) -> Any:
        settings = self._settings(Momentum)
        configs = self.user_defined_strategy.dgc_configs
        workers = self.role_maker.worker_num()
        wanted = ("rampup_begin_step", "rampup_step", "sparsity")
        return DGCMomentumOptimizer(
            **settings, **{name: configs[name] for name in wanted}, num_trainers=workers
        )


class GradientMergeOptimizer(_Replaced):
    """One update for the gradients of several steps."""

    def _wrap(self) -> Any:
        configs = self.user_defined_strategy.gradient_merge_configs
        return MergedGradients(self.inner_opt, configs["k_steps"], configs["avg"])
