"""FleetFabricStrategy: Fabric with a strategy of Fleet instead of DDP.

    fabric = Fabric(strategy=FleetFabricStrategy(strategy), accelerator="cpu", devices=2)

`fabric.setup`, `backward`, `no_backward_sync`, `save` and `load` are still Fabric's.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lightning.fabric.strategies import DDPStrategy
from torch import nn
from torch.optim import Optimizer

from fleetx.fleet.collective.distributed_model import LooksLikeItsModule
from fleetx.integrations.lightning_environment import WithJob, states_of


class FleetFabricStrategy(WithJob, DDPStrategy):
    """Trains the models of `fabric.setup` with a `fleet.DistributedStrategy`.

    Args:
        fleet_strategy: the strategy; the default one if None, which is DDP.
        options: further options of DDPStrategy, such as `cluster_environment`; not those of DDP.
    """

    def __init__(self, fleet_strategy: Any = None, **options: Any) -> None:
        super().__init__(fleet_strategy, **options)
        self._backward_sync_control = _NoSync()

    def setup_environment(self) -> None:
        """Set up Fabric's process group, and attach Fleet to it."""
        super().setup_environment()
        self.job.start(self.global_rank, self.world_size, self.num_nodes)

    def setup_module(self, module: nn.Module) -> Any:
        """Return the distributed module."""
        return self.job.model(module)

    def setup_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Return the distributed optimizer."""
        return self.job.optimizer(optimizer)

    def clip_gradients_norm(self, *args: Any, **kwargs: Any) -> Any:
        """Clip gradients by norm; reject techniques with which this sees the wrong gradients."""
        self.job.check_clip("fabric.clip_gradients(max_norm=…)")
        return super().clip_gradients_norm(*args, **kwargs)

    def clip_gradients_value(self, *args: Any, **kwargs: Any) -> None:
        """Clip gradients by value; reject techniques with which this sees the wrong gradients."""
        self.job.check_clip("fabric.clip_gradients(clip_val=…)")
        super().clip_gradients_value(*args, **kwargs)

    def save_checkpoint(self, path: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Write a checkpoint, and the states of all workers if they differ."""
        self.job.make_equal()
        super().save_checkpoint(path, state, *args, **kwargs)
        if any(isinstance(each, Optimizer) for each in state.values()):
            self.job.save(states_of(path))

    def load_checkpoint(self, path: Any, state: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint, and this worker's state if they differ."""
        rest = super().load_checkpoint(path, state, *args, **kwargs)
        if isinstance(state, dict) and any(isinstance(e, Optimizer) for e in state.values()):
            self.job.load(states_of(path))
        return rest


class _NoSync:
    """Skips gradient synchronization, for `fabric.no_backward_sync`."""

    def no_backward_sync(self, module: nn.Module, enabled: bool) -> AbstractContextManager[Any]:
        """Return a context without gradient synchronization, if enabled."""
        if not enabled or not isinstance(module, LooksLikeItsModule):
            return nullcontext()
        return module.no_sync()
