"""Recognise wrappers of other libraries around a model or inside it.

Two wrappers that exchange gradients or parameters interfere with each other. Wrappers are
recognised by the names of their classes, so that no library has to be imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from fleetx import torch_private
from fleetx.techniques.sharding_parameters import DIVIDED_BY_FLEET

_NAMES = frozenset(
    {
        "DataParallel",
        "DistributedDataParallel",
        "FullyShardedDataParallel",
        "FSDPModule",
        "DeepSpeedEngine",
    }
)


class FleetWrapper:
    """Marks the wrappers that `fleet.distributed_model` makes."""


def refuse_other_wrappers(model: nn.Module) -> None:
    """Raise TypeError if a model or a part of it is distributed already."""
    for path, module in _parts(model):
        is_ours = isinstance(module, FleetWrapper)
        found = "fleet.distributed_model" if is_ours else _by_name(module)
        if found is not None:
            where = f"its part {path!r}" if path else "it"
            raise TypeError(
                f"fleet.distributed_model was given a {type(model).__name__}, but {where} is "
                f"distributed by {found} already: give it the model as it was before that."
            )
    for name, parameter in model.named_parameters():
        if type(parameter).__name__ == "DTensor":
            raise TypeError(
                f"fleet.distributed_model was given a {type(model).__name__} whose parameter "
                f"{name!r} is a DTensor, distributed over workers already: give it the model "
                "before another library (fully_shard, parallelize_module) takes it."
            )


def refuse_outer_wrapper(wrapper: nn.Module, module: nn.Module) -> None:
    """Raise TypeError if another library has changed a distributed model since.

    Args:
        wrapper: what `fleet.distributed_model` returned.
        module: the user's model inside.
    """
    kinds = [_by_name(part) or _marked(part) for part in (wrapper, *module.modules())]
    found = next((kind for kind in kinds if kind is not None), None)
    if found is not None:
        raise TypeError(_around(found))


def refuse_foreign_ddp(module: nn.Module, *_: Any) -> None:
    """Raise TypeError if a model runs inside a DistributedDataParallel that is not fleet's.

    It can be registered as a forward pre-hook.
    """
    active = torch_private.running_ddp()
    if active is None or isinstance(active, FleetWrapper):
        return
    if any(part is module for part in active.modules()):
        raise TypeError(_around("DistributedDataParallel"))


def _around(other: str) -> str:
    return (
        f"the model that fleet.distributed_model returned is wrapped by {other} too, and the two "
        "would undo each other's exchange: leave that wrapper (accelerator.prepare, a Trainer, "
        "Lightning's ddp, fully_shard) out, or train without fleet."
    )


def _parts(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Iterate over a module and everything in it, fleet's wrappers included."""
    yield path, module
    for name, child in module._modules.items():
        if child is not None:
            yield from _parts(child, f"{path}.{name}" if path else name)


def _by_name(module: nn.Module) -> str | None:
    """Return the name of the library wrapper that distributes a module."""
    if DIVIDED_BY_FLEET in module.__dict__:
        return None
    names = [kind.__name__ for kind in type(module).__mro__]
    return next(("fully_shard" if n == "FSDPModule" else n for n in names if n in _NAMES), None)


def _marked(module: nn.Module) -> str | None:
    # FullyShardedDataParallel marks the modules it holds, for torch's compiler.
    held = module.__dict__.get("_is_fsdp_managed_module", False)
    is_held = held and DIVIDED_BY_FLEET not in module.__dict__
    return "FullyShardedDataParallel" if is_held else None
