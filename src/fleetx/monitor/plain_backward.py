"""The loss of a loop that only calls `loss.backward()`, noted where backward begins.

Neither the model nor the optimizer sees such a loss. While something is measured, torch's method is
replaced by one that shows the loss to the recorders and then runs the original. A replacement that
another library has put around it stays where it is; what it wraps then shows nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

Listener = Callable[[torch.Tensor], None]

_listeners: list[Listener] = []
_replaced: list[Callable[..., Any]] = []
"""The method before the first listener came, and the one in its place."""


def _showing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that shows a loss to the listeners and runs the original one."""

    @wraps(original)
    def backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        is_current = backward is _replaced[1]  # another one may have been put around it since
        if is_current and loss.numel() == 1 and loss.is_floating_point():
            for listener in _listeners:
                listener(loss.detach())
        return original(loss, *args, **kwargs)

    return backward


def listen(listener: Listener) -> Callable[[], None]:
    """Call a listener with every loss on which backward is called; return how to stop it."""
    _listeners.append(listener)
    if len(_listeners) == 1:
        original = torch.Tensor.backward
        _replaced[:] = [original, _showing(original)]
        torch.Tensor.backward = _replaced[1]  # type: ignore[method-assign]

    def remove() -> None:
        _listeners.remove(listener)
        if not _listeners and torch.Tensor.backward is _replaced[1]:
            torch.Tensor.backward = _replaced[0]  # type: ignore[method-assign]

    return remove
