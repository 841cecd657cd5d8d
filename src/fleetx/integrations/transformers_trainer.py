"""FleetTrainer: transformers' Trainer with a strategy of Fleet instead of DDP.

    trainer = FleetTrainer(model, args, train_dataset=data, fleet_strategy=strategy)

Subclasses of Trainer, such as TRL's, use the mix-in: `class Mine(FleetTrainerMixin, Base)`.
`trainer.train(resume_from_checkpoint=True)` finds the states of all workers beside the Trainer's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer

from fleetx.integrations.accelerate_plugin import STATES, FleetPlugin

_OF_DDP = (
    "ddp_find_unused_parameters",
    "ddp_bucket_cap_mb",
    "ddp_broadcast_buffers",
    "ddp_static_graph",
)


def _of_a_numbered_cpu(storage: Any, location: str) -> Any:
    return storage if re.fullmatch(r"cpu:\d+", location) else None


# Accelerate numbers a worker's CPU, but torch.load does not support "cpu:0": up to version 5.16,
# the Trainer cannot read its own checkpoints on several CPU workers without this.
torch.serialization.register_package(50, lambda storage: None, _of_a_numbered_cpu)


class FleetTrainerMixin:
    """The methods that make a Trainer use a strategy; list it before Trainer in the bases."""

    accelerator: Any
    args: Any
    optimizer: Any

    def __init__(self, *args: Any, fleet_strategy: Any = None, **kwargs: Any) -> None:
        self.fleet_plugin = FleetPlugin(fleet_strategy)
        super().__init__(*args, **kwargs)

    def create_accelerator_and_postprocess(self) -> None:
        """Create the accelerator, and make it train with the strategy."""
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        for setting in _OF_DDP:
            if getattr(self.args, setting, None) is not None:
                raise ValueError(
                    f"{setting}={getattr(self.args, setting)!r} is a setting of DDP, but a "
                    "FleetTrainer does not wrap the model in it: omit it, and set a switch of "
                    "the fleet strategy, such as find_unused_parameters."
                )
        self.accelerator.ddp_handler = None  # the Trainer always makes one
        self.fleet_plugin.attach(self.accelerator)
        if self.args.max_grad_norm:
            self.fleet_plugin.job.check_clip(f"max_grad_norm={self.args.max_grad_norm}")

    def _save_checkpoint(self, model: nn.Module, trial: Any, **options: Any) -> None:
        # Older versions pass metrics.
        self.fleet_plugin.job.make_equal()
        super()._save_checkpoint(model, trial, **options)  # type: ignore[misc]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        job = self.fleet_plugin.job
        if job.gathers_state and not self.args.should_save:
            self.optimizer.state_dict()  # sharded: worker 0 writes the gathered state
        super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
        job.save(Path(output_dir) / STATES)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is not None:
            self.fleet_plugin.job.load(Path(checkpoint) / STATES)


class FleetTrainer(FleetTrainerMixin, Trainer):
    """A Trainer that uses `fleet_strategy`, a `fleet.DistributedStrategy`."""
