"""FleetPlugin: an Accelerator that trains with a strategy of Fleet instead of DDP.

    accelerator = FleetPlugin(strategy).attach(Accelerator())

`prepare`, `backward`, `accumulate`, `save_state` and the rest are still Accelerate's; only models
and optimizers are handled by Fleet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import DistributedType, DynamoBackend
from torch import nn
from torch.optim import Optimizer

from fleetx.fleet.collective.distributed_model import LooksLikeItsModule
from fleetx.integrations.attached_job import AttachedJob

# Accelerate's names of jobs in which it wraps models in DDP, or has one worker.
_PLAIN = {
    DistributedType.NO,
    DistributedType.MULTI_CPU,
    DistributedType.MULTI_GPU,
}
STATES = "fleet"
"""The folder in a checkpoint with the states of all workers."""


class FleetPlugin:
    """Trains the models that an Accelerator prepares with a strategy.

    Args:
        strategy: a `fleet.DistributedStrategy`; the default one if None, which is DDP.
    """

    def __init__(self, strategy: Any = None) -> None:
        self.job = AttachedJob(strategy)
        self._theirs: dict[str, Callable[..., Any]] = {}
        self._folder: str | None = None  # of the checkpoint that is being loaded

    def attach(self, accelerator: Accelerator) -> Accelerator:
        """Make an accelerator train with the strategy; return it."""
        if self._theirs:
            raise RuntimeError("a FleetPlugin is for one Accelerator: create another one.")
        _refuse_other_engines(accelerator)
        self.job.start(accelerator.process_index, accelerator.num_processes)
        ours = {
            "prepare_model": self._prepare_model,
            "prepare_optimizer": self._prepare_optimizer,
            "unwrap_model": self._unwrap_model,
            "clip_grad_norm_": self._clip_grad_norm,
            "clip_grad_value_": self._clip_grad_value,
            "save_state": self._save_state,
            "load_state": self._load_state,
        }
        self._theirs = {name: getattr(accelerator, name) for name in ours}
        for name, method in ours.items():
            setattr(accelerator, name, method)
        accelerator.register_load_state_pre_hook(self._note_folder)
        return accelerator

    # -- what the accelerator calls instead of its own methods ------------------------------
    def _prepare_model(
        self,
        model: nn.Module,
        device_placement: bool | None = None,
        evaluation_mode: bool = False,
    ) -> nn.Module:
        # In evaluation mode, Accelerate moves a model to its device and does not wrap it.
        prepare = partial(self._theirs["prepare_model"], evaluation_mode=True)
        if evaluation_mode or isinstance(model, LooksLikeItsModule):
            return prepare(model, device_placement=device_placement)
        accelerator: Accelerator = self._theirs["prepare_model"].__self__  # type: ignore[attr-defined]
        if accelerator.device_placement if device_placement is None else device_placement:
            model = model.to(accelerator.device)
        return prepare(self.job.model(model), device_placement=False)

    def _prepare_optimizer(
        self, optimizer: Optimizer, device_placement: bool | None = None
    ) -> AcceleratedOptimizer:
        if not isinstance(optimizer, AcceleratedOptimizer):
            optimizer = self.job.optimizer(optimizer)
        prepared: AcceleratedOptimizer = self._theirs["prepare_optimizer"](
            optimizer, device_placement=device_placement
        )
        return prepared

    def _unwrap_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        if isinstance(model, LooksLikeItsModule):
            return model.module
        return self._theirs["unwrap_model"](model, *args, **kwargs)

    def _clip_grad_norm(self, parameters: Any, max_norm: float, norm_type: float = 2) -> Any:
        if max_norm != float("inf"):  # inf: the Trainer only measures the norm
            self.job.check_clip("accelerator.clip_grad_norm_")
        return self._theirs["clip_grad_norm_"](parameters, max_norm, norm_type=norm_type)

    def _clip_grad_value(self, *args: Any, **kwargs: Any) -> Any:
        self.job.check_clip("accelerator.clip_grad_value_")
        return self._theirs["clip_grad_value_"](*args, **kwargs)

    def _save_state(self, output_dir: str | None = None, **options: Any) -> str:
        self.job.make_equal()
        folder: str = self._theirs["save_state"](output_dir, **options)
        self.job.save(Path(folder) / STATES)
        return folder

    def _load_state(self, input_dir: str | None = None, **options: Any) -> None:
        self._theirs["load_state"](input_dir, **options)
        assert self._folder is not None
        self.job.load(Path(self._folder) / STATES)

    def _note_folder(self, _: Any, folder: str) -> None:
        self._folder = folder


def _refuse_other_engines(accelerator: Accelerator) -> None:
    """Reject an accelerator that distributes or compiles models itself."""
    kind = accelerator.distributed_type
    if kind not in _PLAIN:
        raise ValueError(
            f"the Accelerator trains with {kind.value}, and FleetPlugin distributes the model too: "
            "remove one of the two."
        )
    if accelerator.ddp_handler is not None:
        raise ValueError(
            "the Accelerator has DistributedDataParallelKwargs, but FleetPlugin does not use "
            "Accelerate's DDP: remove them, and set strategy.find_unused_parameters or another "
            "switch of the strategy."
        )
    if accelerator.state.dynamo_plugin.backend != DynamoBackend.NO:
        raise ValueError(
            "the Accelerator has dynamo_backend="
            f"{accelerator.state.dynamo_plugin.backend.value!r}, but FleetPlugin does not "
            "support models compiled by it: omit dynamo_backend, and call model.compile()."
        )
