"""RecomputeOptimizer: discards activations between checkpoints and recomputes them for gradients.

`append_backward(checkpoints=...)` decides which ops are recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.optimizer.wrapped_optimizer import ProgramStage, WrappedOptimizer


class Recomputation(ProgramStage):
    """The memory stage of programs: `set_checkpoints` names the variables that stay in memory."""

    _checkpoints: list[Any] | None = None
    enable_offload = False
    """Offload checkpoints to host memory until backward."""

    def set_checkpoints(self, checkpoints: Sequence[Any]) -> None:
        """Set which Variables (or names) are kept; everything between them is recomputed."""
        if not isinstance(checkpoints, list | tuple):
            raise TypeError(
                "checkpoints must be a list of Variables or names, "
                f"not {type(checkpoints).__name__}."
            )
        self._checkpoints = list(checkpoints)

    _set_checkpoints = set_checkpoints  # Paddle's name

    def _enable_offload(self) -> None:
        self.enable_offload = True

    def write_loss(self, loss: Variable) -> Variable:
        """Return the loss; record in the program where its checkpoints are stored."""
        if self._checkpoints is None:
            raise ArgumentError("call set_checkpoints before minimize of a RecomputeOptimizer.")
        loss.block.program.binding.offloads_checkpoints = self.enable_offload
        return loss

    def backward_settings(self) -> dict[str, Any]:
        """Return the checkpoints."""
        return {"checkpoints": self._checkpoints}


class RecomputeOptimizer(WrappedOptimizer, Recomputation):
    """An optimizer with recomputation."""

    slot = "memory"

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)

    def load(self, stat_dict: dict[str, Any]) -> None:
        """Raise an error: the state belongs to the inner optimizer."""
        raise NotImplementedError("RecomputeOptimizer has no state to load: load the inner one's.")
