"""Stage 3 of sharding: parameters divided between workers, by torch's `fully_shard` (FSDP2).

A block of the model is a unit: its parameters are gathered before it computes and dropped after,
forward and backward, and its gradients leave backward as parts of means. The optimizer updates
the parts, so that its state is divided too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.comm import world
from fleetx.comm.divided_tensors import divided_like, whole
from fleetx.step.stages import GradientSync, Update
from fleetx.techniques.recompute import find_modules

DIVIDED_BY_FLEET = "_fleetx_divided"
"""In the `__dict__` of modules that stage 3 has divided."""


def can_divide() -> bool:
    """Return whether this PyTorch has what stage 3 needs."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 7)


def find_blocks(model: nn.Module, anchors: Sequence[str] = ()) -> dict[str, nn.Module]:
    """Return the modules to gather one at a time: those named, else the outermost modules with
    parts of their own whose class occurs more than once."""
    if anchors:
        named = find_modules(model, anchors, setting="sharding_configs['segment_anchors']")
        return {name: module for name, module in named.items() if name}
    counts = Counter(type(module) for module in model.modules() if _is_block(module))
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        is_inside = any(name.startswith(f"{outer}.") for outer in found)
        if name and not is_inside and _is_block(module) and counts[type(module)] > 1:
            found[name] = module
    return found


def _is_block(module: nn.Module) -> bool:
    """Return whether a module runs parts that have parameters."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict):  # they are not called themselves
        return False
    return any(next(child.parameters(), None) is not None for child in module.children())


class DividedParameters(GradientSync):
    """Gradients are parts of means when backward ends: `fully_shard` has exchanged them."""

    during_backward = False
    keeps_no_state = divides = True

    def __init__(self, anchors: Sequence[str], dtype: torch.dtype | None) -> None:
        """`dtype` is the half precision that gradients travel in; None for their own type."""
        self._anchors = anchors
        self._dtype = dtype
        self._pairs: list[tuple[Tensor, Tensor]] = []  # parameters before and after
        self._optimizer: Optimizer | None = None
        self.block_elements = 0
        """Elements of trained parameters that are gathered twice, for forward and backward."""

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Let an optimizer that was made from the whole parameters update the parts."""
        self._optimizer = optimizer
        new = {id(old): part for old, part in self._pairs}
        for group in optimizer.param_groups:
            group["params"][:] = [new.get(id(p), p) for p in group["params"]]
        for old, part in self._pairs:
            if old in optimizer.state:
                state = optimizer.state.pop(old)
                optimizer.state[part] = {key: _part_of(v, part) for key, v in state.items()}

    def distribute(self, model: nn.Module) -> None:
        """Divide the parameters of a model, which are equal on all workers."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        before = dict(model.named_parameters())
        for name, parameter in before.items():
            if not parameter.dim():
                raise ValueError(
                    f"sharding with stage 3 divides parameters by their first dimension, but "
                    f"{name!r} has none: give it the shape (1,), or set "
                    "sharding_configs['stage'] to 2."
                )
        world.meet()
        device = next(iter(before.values())).device.type
        mesh = init_device_mesh(device, (world.world_size(),))
        blocks = find_blocks(model, self._anchors)
        policy = MixedPrecisionPolicy(reduce_dtype=self._dtype)
        inside = {p for block in blocks.values() for p in block.parameters() if p.requires_grad}
        self.block_elements = sum(p.numel() for p in inside)
        for block in reversed(blocks.values()):  # a block inside another one comes first
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        for module in model.modules():
            module.__dict__[DIVIDED_BY_FLEET] = True
        after = dict(model.named_parameters())
        self._pairs = [(old, after[name]) for name, old in before.items()]
        for old in before.values():
            old.data = old.data.new_empty(0)  # whoever holds it keeps no memory
        if self._optimizer is not None:
            self.take_optimizer(self._optimizer)


class DividedUpdate(Update):
    """The optimizer updates this worker's parts."""

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state of all parts as one; all workers must call it."""
        own = optimizer.state_dict()
        state = {i: {k: whole(v) for k, v in each.items()} for i, each in own["state"].items()}
        return {**own, "state": state}

    def load_optimizer_state(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Load this worker's parts of a whole state."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        parts = {
            i: {key: _part_of(value, parameters[i]) for key, value in each.items()}
            for i, each in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": parts})


def _part_of(value: Any, parameter: Tensor) -> Any:
    """Return this worker's part of an entry of a parameter's state."""
    is_like = isinstance(value, Tensor) and value.shape == parameter.shape
    return divided_like(value, parameter) if is_like else value
