"""recompute: activations between checkpoints are dropped and recomputed in backward.

Stage memory. For PyTorch modules `checkpoints` are modules, by name, by a pattern or by class; only
their inputs are kept. For programs they are variables, and what is between them is computed again.
Results are the same bit for bit; a step costs up to one more forward pass. `enable_offload` keeps
the checkpoints in the memory of the host, for models on another device.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from fleetx.comm.device import gpu_count
from fleetx.static.optimizer.recompute_optimizer import Recomputation
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import Effect, setting
from fleetx.step.stages import Memory, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.checkpointed import Checkpointed

_NOTHING_TO_MOVE = (
    "recompute_configs['enable_offload'] keeps checkpoints in the memory of the host, but {}: "
    "switch enable_offload off."
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is kept, and where."""

    checkpoints: tuple[str, ...] = setting((), number=1, since="2.0", element=str)
    """Activations to keep: names, Variables, names of modules or their classes."""
    enable_offload: bool = setting(False, number=2, since="2.0")
    """Keep checkpoints in the memory of the host."""
    checkpoint_shape: tuple[int, ...] = setting(
        (), number=3, since="2.0", element=int, effect=Effect.NONE
    )
    """Shape of the checkpoints for offload; shapes are known here."""
    enable_tuning: bool = setting(False, number=4, since="2.4", effect=Effect.NONE)
    """Let the planner choose."""


@register
class Recompute(Technique[Config]):
    """Discard activations and recompute them in backward."""

    name = "recompute"
    order = Order.MEMORY
    since, numbers = "2.0", (3, 101)
    keeps_mathematics = True
    replaces = frozenset({Stage.MEMORY})

    @classmethod
    def trials(cls, strategy: Any, device: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the technique, if the strategy says what to keep."""
        return super().trials(strategy, device) if strategy.recompute_configs["checkpoints"] else []

    def check(self) -> None:
        """Refuse a strategy without checkpoints, and offload on a machine with host memory only."""
        if not self.config.checkpoints:
            raise ValueError(
                "the strategy switches on recompute without recompute_configs['checkpoints']: name "
                "modules or their classes there, in a program the variables to keep."
            )
        if self.config.enable_offload and not gpu_count():
            raise ValueError(_NOTHING_TO_MOVE.format("this machine has no other memory"))

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Discard activations between the checkpoints."""
        step.memory = Recomputed(self.config.checkpoints, offload=self.config.enable_offload)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what it saves: as much as the activations between checkpoints need."""
        names = list(self.config.checkpoints)
        text = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        if self.config.enable_offload:
            text += ", kept on the host"
        return [Row(stage=Stage.MEMORY, technique=self.name, settings=text, memory=None)]


class Recomputed(Memory, Recomputation):
    """Modules that match the checkpoints discard their activations; in a program, all ops between
    the checkpoints run again."""

    def __init__(self, checkpoints: Sequence[str], *, offload: bool = False) -> None:
        self.set_checkpoints(list(checkpoints))
        self.enable_offload = offload

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model, with the forward functions of matching modules replaced."""
        if self.enable_offload and all(p.device.type == "cpu" for p in model.parameters()):
            raise ValueError(_NOTHING_TO_MOVE.format("the model is there already"))
        for name, module in find_modules(model, self._checkpoints or ()).items():
            if not isinstance(module.__dict__.get("forward"), Checkpointed):
                module.forward = Checkpointed(module, name, offload=self.enable_offload)
        return model


def find_modules(
    model: nn.Module,
    wanted: Sequence[str],
    *,
    setting: str = "recompute_configs['checkpoints']",
) -> dict[str, nn.Module]:
    """Return the modules that are named by name, by pattern or by class, in the model's order.

    Raises ValueError for what no module matches, with names that are near.
    """
    modules = dict(model.named_modules())
    found: set[str] = set()
    for text in wanted:
        matches = {
            name
            for name, module in modules.items()
            if (name and fnmatchcase(name, text)) or text in _class_names(module)
        }
        if not matches:
            known = {*modules, *(n for m in modules.values() for n in _class_names(m))} - {""}
            near = difflib.get_close_matches(text, sorted(known), 4, 0.5) or sorted(modules)[1:5]
            raise ValueError(
                f"{setting} names {text!r}, but the model has no module of "
                f"this name or class; similar names are {', '.join(near)}."
            )
        found |= matches
    return {name: module for name, module in modules.items() if name in found}


def _class_names(module: nn.Module) -> set[str]:
    kinds = type(module).__mro__
    own = kinds[: kinds.index(nn.Module)]
    return {kind.__name__ for kind in own}
