"""Losses of outputs that workers have parts of, by torch's `loss_parallel`.

Torch means it to be a context around the loss and its backward. Scripts have no place for one, so
that it is entered when a model is divided and left with the job.
"""

from __future__ import annotations

from contextlib import ExitStack

from fleetx.comm import world


class _Divided:
    """The context, for `world.disconnect` to leave."""

    def __init__(self) -> None:
        self._context = ExitStack()
        self.is_on = False

    def enter(self) -> None:
        """Compute cross entropy from parts, until the world ends."""
        from torch.distributed.tensor.parallel import loss_parallel

        self._context.enter_context(loss_parallel())
        self.is_on = True
        world.hold(self)

    def leave(self) -> None:
        """Compute as usual again."""
        self._context.close()
        self.is_on = False


_divided = _Divided()


def divide_losses() -> None:
    """Let `cross_entropy` take outputs of which every worker has a part of the classes."""
    if not _divided.is_on:
        _divided.enter()
