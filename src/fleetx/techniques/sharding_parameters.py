"""Stage 3 of sharding: parameters divided between workers, by torch's `fully_shard` (FSDP2).

A block of the model is a unit: its parameters are gathered before it computes and dropped after,
forward and backward, and its gradients leave backward as parts of means. The optimizer updates
the parts, so that its state is divided too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from fleetx.comm import world
from fleetx.comm.divided_tensors import shape_elsewhere
from fleetx.comm.kept_buffers import KeptBuffers, KeptGather, KeptReduce
from fleetx.comm.layout import Layout
from fleetx.runtime import allocator
from fleetx.step.stages import GradientSync
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

    def __init__(
        self,
        anchors: Sequence[str],
        dtype: torch.dtype | None,
        layout: Layout,
        *,
        averages_copies: bool,
    ) -> None:
        """`dtype` is the half precision that gradients travel in; None for their own type.
        `averages_copies`: gradients are means over all copies of the model, too."""
        self._layout = layout
        self._axes = ("dp", "sharding") if averages_copies else ("sharding",)
        self._anchors = anchors
        self._dtype = dtype
        self.block_elements = 0
        """Elements of trained parameters that are gathered twice, for forward and backward."""

    def distribute(self, model: nn.Module, roots: Sequence[nn.Module]) -> None:
        """Divide the parameters of a model, which are equal on all workers.

        `roots` are what this worker runs: the model, or its stages of a pipeline.
        """
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        _check_shapes(model)
        world.meet()
        device = next(model.parameters()).device.type
        axes = tuple(a for a in self._axes if getattr(self._layout.degrees, a) > 1)
        mesh = self._layout.mesh(device)[axes]
        run = {id(module) for root in roots for module in root.modules()}
        found = find_blocks(model, self._anchors).values()
        blocks = [block for block in found if id(block) in run]
        policy = MixedPrecisionPolicy(reduce_dtype=self._dtype)
        self.block_elements = _trained_elements(blocks)
        allocator.return_large_blocks()  # else the C library keeps what was gathered
        buffers = KeptBuffers()
        for block in [*reversed(blocks), *roots]:  # one inside another comes first
            whole = list(block.parameters())
            divided: Any = fully_shard(block, mesh=mesh, mp_policy=policy)
            if device == "cpu" and hasattr(divided, "set_custom_all_gather"):
                divided.set_custom_all_gather(KeptGather(buffers))
                divided.set_custom_reduce_scatter(KeptReduce(buffers))
            _drop(whole, model)
        for module in model.modules():
            module.__dict__[DIVIDED_BY_FLEET] = True


def _check_shapes(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if not len(shape_elsewhere(parameter)):
            raise ValueError(
                f"sharding with stage 3 divides parameters by their first dimension, but "
                f"{name!r} has none: give it the shape (1,), or set "
                "sharding_configs['stage'] to 2."
            )


def _drop(whole: Iterable[nn.Parameter], model: nn.Module) -> None:
    """Free parameters that a model no longer has, whoever holds them: the next block is divided in
    their place, not beside them."""
    kept = {id(p) for p in model.parameters()}
    for parameter in whole:
        if id(parameter) not in kept:
            parameter.data = parameter.data.new_empty(0)


def _trained_elements(blocks: Iterable[nn.Module]) -> int:
    """Return how many elements blocks train."""
    inside = {p for block in blocks for p in block.parameters() if p.requires_grad}
    return sum(p.numel() for p in inside)
