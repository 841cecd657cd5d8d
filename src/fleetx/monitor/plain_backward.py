"""The loss of a loop that only calls `loss.backward()`, noted where backward begins.

Neither the model nor the optimizer sees such a loss. While something is measured, torch's method is
replaced by one that shows the loss to the recorders and then runs the original.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

Listener = Callable[[torch.Tensor], None]

_listeners: list[Listener] = []
_original = torch.Tensor.backward


@wraps(_original)
def _backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if loss.numel() == 1 and loss.is_floating_point():
        for listener in _listeners:
            listener(loss.detach())
    return _original(loss, *args, **kwargs)


def listen(listener: Listener) -> Callable[[], None]:
    """Call a listener with every loss on which backward is called; return how to stop it."""
    _listeners.append(listener)
    torch.Tensor.backward = _backward  # type: ignore[method-assign, assignment]

    def remove() -> None:
        _listeners.remove(listener)
        if not _listeners:
            torch.Tensor.backward = _original  # type: ignore[method-assign]

    return remove
