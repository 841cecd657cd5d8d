"""FleetStrategy: Lightning's Trainer with a strategy of Fleet instead of DDP.

    trainer = Trainer(strategy=FleetStrategy(strategy), accelerator="cpu", devices=2)

It is Lightning's DDPStrategy (launching, samplers, reductions, logging) with Fleet's model and
optimizer. The states of all workers, if they differ, are in a folder beside a checkpoint.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.overrides.distributed import prepare_for_backward
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from fleetx.fleet.collective.distributed_model import DistributedModel, LooksLikeItsModule
from fleetx.integrations.attached_job import remove_states
from fleetx.integrations.lightning_environment import WithJob, states_of


class FleetStrategy(WithJob, DDPStrategy):
    """Trains a LightningModule with a `fleet.DistributedStrategy`.

    Args:
        fleet_strategy: the strategy; the default one if None, which is DDP.
        options: further options of DDPStrategy, such as `cluster_environment`; not those of DDP.
    """

    model: Any
    optimizers: Any

    def __init__(self, fleet_strategy: Any = None, **options: Any) -> None:
        super().__init__(fleet_strategy, **options)
        # In manual optimization, backward passes are over when the forward pass of DDP ends.
        redirection: Any = self._forward_redirection
        redirection.on_after_inner_forward = partial(_expect_backward, False)
        redirection.on_after_outer_forward = partial(_expect_backward, True)
        self._loaded_from: Any = None

    def setup_distributed(self) -> None:
        """Set up Lightning's process group, and attach Fleet to it."""
        super().setup_distributed()
        self.job.start(self.global_rank, self.world_size, self.num_nodes)

    def setup(self, trainer: Trainer) -> None:
        """Set up model and optimizers; reject clipping that would see the wrong gradients."""
        if trainer.gradient_clip_val:
            self.job.check_clip(f"gradient_clip_val={trainer.gradient_clip_val}")
        super().setup(trainer)

    def _setup_model(self, model: nn.Module) -> Any:
        return self.job.model(model)

    def _register_ddp_hooks(self) -> None:
        """Skip DDP's communication hooks: the strategy of Fleet handles communication."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        """Create the optimizers, and distribute them by Fleet."""
        super().setup_optimizers(trainer)
        self.optimizers = [self.job.optimizer(each) for each in self.optimizers]

    @contextmanager
    def block_backward_sync(self) -> Generator[None, None, None]:
        """Accumulate gradients on this worker in this context."""
        assert isinstance(self.model, LooksLikeItsModule)
        with self.model.no_sync():
            yield

    def pre_backward(self, closure_loss: Tensor) -> None:
        """Let a backward pass inside the training step (manual optimization) average gradients."""
        if isinstance(self.model, DistributedModel) and _is_manual(self.lightning_module):
            averaging = self.model.averaging
            prepare_for_backward(averaging, closure_loss)
            averaging.watch.begin_pass(averages=averaging.require_backward_grad_sync)

    def teardown(self) -> None:
        """Restore the original module."""
        if isinstance(self.model, LooksLikeItsModule):
            self.job.release(self.model)
            self.model = self.lightning_module
        super().teardown()

    # -- checkpoints ----------------------------------------------------------------------
    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the state of the module: one for all workers, which must all call it."""
        if not isinstance(self.model, LooksLikeItsModule):
            return super().lightning_module_state_dict()
        self.job.make_equal()
        return self.model.state_dict()

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Load the state of the module."""
        model = self.model if isinstance(self.model, LooksLikeItsModule) else self.lightning_module
        assert isinstance(model, nn.Module)
        model.load_state_dict(checkpoint["state_dict"], strict=strict)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint, and the states of all workers if they differ."""
        super().save_checkpoint(checkpoint, filepath, storage_options)
        if "optimizer_states" in checkpoint:
            self.job.save(states_of(filepath))

    def remove_checkpoint(self, filepath: Any) -> None:
        """Remove a checkpoint, and the states of all workers with it."""
        super().remove_checkpoint(filepath)
        if self.is_global_zero:
            remove_states(states_of(filepath))

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read a checkpoint."""
        self._loaded_from = checkpoint_path
        return super().load_checkpoint(checkpoint_path, *args, **kwargs)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load the states of the optimizers, and this worker's if they differ."""
        super().load_optimizer_state_dict(checkpoint)
        self.job.load(states_of(self._loaded_from))


def _expect_backward(
    expected: bool, wrapper_module: nn.Module, original_module: LightningModule
) -> None:
    if isinstance(wrapper_module, DistributedModel) and _is_manual(original_module):
        wrapper_module.averaging.require_backward_grad_sync = expected


def _is_manual(module: LightningModule | None) -> bool:
    return module is not None and not module.automatic_optimization
