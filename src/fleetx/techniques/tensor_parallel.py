"""tensor_parallel: workers divide the layers of a model, and compute each of them together.

A plan says how each module is divided: by its name, as the model itself says, or as known for its
family. Parameters become parts (torch's `parallelize_module`); inputs and outputs of a divided pair
of layers are whole, so that the rest of the model computes as before. All workers of a copy get the
same batch, or join theirs (`joined_batches.py`); copies average gradients, or what a technique such
as `localsgd` has them exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.comm.divided_tensors import is_divided, own_part
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import Stage, Update
from fleetx.step.technique import Row, Sizes
from fleetx.step.text_table import size
from fleetx.step.train_step import TrainStep
from fleetx.techniques.copies import OwnParts, check_parts
from fleetx.techniques.divided_update import DividedUpdate
from fleetx.techniques.dividing import DividingTechnique
from fleetx.techniques.gradient_clip import Clip
from fleetx.techniques.joined_batches import join_batches
from fleetx.techniques.random_state import SharedRandomNumbers
from fleetx.techniques.same_batch import check_same_batch
from fleetx.techniques.sharding_state import state_copies
from fleetx.techniques.tensor_parallel_plan import divide_modules, find_plan, read_plan
from fleetx.techniques.tensor_parallel_traffic import LayerTraffic


@dataclass(frozen=True, kw_only=True)
class Config:
    """How many workers divide a layer, and how."""

    tensor_parallel_degree: int = setting(1, number=1, since="2.1", least=1)
    """Workers that divide the layers of one copy."""
    tensor_init_seed: int = setting(-1, number=2, since="2.1", least=-1)
    """Seed of the random numbers that the workers of a copy share, such as those of dropout; -1:
    they go on with those of the first of them."""
    plan: tuple[str, ...] = setting((), element=str)
    """How modules are divided: "name: colwise", "name: rowwise", "name: embedding" or
    "name: gathered"; names may be patterns. Without it, the model's own plan or a known one.
    Styles of parts of a sequence need `sequence_parallel`."""
    sequence_parallel: bool = setting(False)
    """Between divided layers, each worker computes on a part of the sequence."""
    loss_parallel: bool = setting(False)
    """Outputs of the layer before the loss stay divided, and cross entropy is computed from the
    parts."""


@register
class TensorParallel(DividingTechnique[Config]):
    """Layers divided between workers."""

    name = "tensor_parallel"
    axis = "mp"
    since, numbers = "2.1", (29, 113)

    _whole_bytes = 0
    _own_bytes = 0
    _plan: dict[str, str] | None = None

    # -- checks ---------------------------------------------------------------------------
    def check(self) -> None:
        """Refuse jobs in which it cannot act."""
        super().check()
        if self.job.workers > 1 and self.job.layout.degrees.mp == 1:
            raise ValueError(
                "the strategy switches on tensor_parallel, but "
                "tensor_parallel_configs['tensor_parallel_degree'] is 1, which divides nothing: "
                "set it to a divisor of the number of workers, or switch off tensor_parallel."
            )
        if self.joins_batches and self.config.loss_parallel:
            raise ValueError(
                "hybrid_configs['joined_batches'] is True, by which workers get the outputs of "
                "their own samples, but tensor_parallel_configs['loss_parallel'] leaves them parts "
                "of the outputs of all samples: set one of them to False."
            )
        read_plan(self.config.plan, sequence_parallel=self.config.sequence_parallel)
        self.check_torch("tensor_parallel", "switch it off, or use sharding with stage 2")

    # -- the step -------------------------------------------------------------------------
    def change_step(self, step: TrainStep) -> None:
        """Divide the model, and let copies exchange parts."""
        self.check_loss_scale(
            step,
            "tensor_parallel",
            "but gradients of divided parameters cannot be divided by the scale",
        )
        self._activations = step.count_activations()
        step.placers.insert(0, self._divide)  # sharding then divides the parts
        self._share_clip(step)
        owner = step.owner("grad_sync")
        if owner is None or not owner.divides:
            if owner is not None:
                check_parts(owner, "tensor_parallel", "switch off one of them")
            self.exchange_between_copies(step, OwnParts())
        if type(step.updater) is Update:
            step.updater = DividedUpdate()

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Note the optimizer, on which the size of its state depends."""
        self.check_whole_layers(optimizer, "tensor_parallel", "tensor_parallel")
        return super().change_update(step, optimizer)

    def _share_clip(self, step: TrainStep) -> None:
        """Let a clip by norm count every element of the model once."""
        self.share_clip(step, "tensor_parallel")
        if isinstance(step.clip, Clip):
            is_first = self.job.layout.place["mp"] == 0
            step.clip.counts = lambda gradient: is_first or _is_part(gradient)

    def _divide(self, model: nn.Module) -> None:
        """Divide the modules that the plan names."""
        layout = self.job.layout
        plan = self._plan = find_plan(
            model,
            self.config.plan,
            sequence_parallel=self.config.sequence_parallel,
            loss_parallel=self.config.loss_parallel,
        )
        self._whole_bytes = _trained_bytes(model)  # in a pipeline, of this worker's stage
        group = layout.group("mp")
        first = next(model.parameters())
        traffic = LayerTraffic(model, plan, group.size, self._activations)
        traffic.watch_inputs()
        divide_modules(model, plan, layout.mesh(first.device.type)["mp"])
        traffic.watch_outputs()
        self._own_bytes = _trained_bytes(model)
        seed = self.config.tensor_init_seed
        if seed >= 0:
            seed += layout.rank // group.size
        if self.joins_batches:
            numbers = SharedRandomNumbers(group, seed)
            join_batches(model, group, numbers, partial(self._activations.sends, "mp"))
            return
        if seed >= 0:
            torch.manual_seed(seed)
        else:
            torch.set_rng_state(group.broadcast(torch.get_rng_state()))
        check_same_batch(model, group)

    # -- explaining -----------------------------------------------------------------------
    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what a worker of a copy holds, with gradients and optimizer state."""
        saved = self._own_bytes - self._whole_bytes
        copies = 2 + state_copies(self._optimizer)
        text = f"{self.job.layout.degrees.mp} workers divide "
        text += "layers, " if self._plan is None else f"{len(self._plan)} modules, "
        return [
            Row(
                stage=Stage.MEMORY,
                technique=self.name,
                settings=text + f"{size(self._own_bytes)} of parameters",
                activations=self._activations.sent("mp"),
                axes=("mp",),
                memory=float(saved) * copies,
            )
        ]


def _is_part(gradient: Tensor) -> bool:
    """Return whether a gradient is divided between the workers that divide layers."""
    if not is_divided(gradient):
        return False
    mesh: Any = gradient.device_mesh  # type: ignore[attr-defined]
    named = dict(zip(mesh.mesh_dim_names, gradient.placements, strict=True))  # type: ignore[attr-defined]
    return "mp" in named and named["mp"].is_shard()


def _trained_bytes(model: nn.Module) -> int:
    parts = [own_part(p) for p in model.parameters() if p.requires_grad]
    return sum(prod(part.shape) * part.element_size() for part in parts)
