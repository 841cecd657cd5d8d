"""Running torch functions on meta tensors without loading torch's compiler.

Many functions work on meta tensors through decompositions written in Python. Those are marked "not
for Dynamo" by a wrapper that imports `torch._dynamo` on its first call, which takes two seconds:
more than building a whole ResNet. Here the wrapper finds a stand-in that marks nothing, and is left
as it was.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

_NAME = "torch._dynamo"
_lock = threading.RLock()


class _StandIn(types.ModuleType):
    """Offers `disable`, which returns functions as they are and remembers them."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        self.seen: list[Any] = []

    def disable(self, fn: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        """Return the function itself."""
        self.seen.append(fn)
        return fn


@contextlib.contextmanager
def without_loading_dynamo() -> Iterator[None]:
    """Keep `torch._dynamo` unloaded inside the block, if it is not loaded yet."""
    if _NAME in sys.modules:
        yield
        return
    with _lock:
        stand_in = sys.modules[_NAME] = _StandIn()
        try:
            yield
        finally:
            if sys.modules.get(_NAME) is stand_in:
                del sys.modules[_NAME]
            for fn in stand_in.seen:
                # The wrapper has cached what `disable` gave it; let it ask the real one next time.
                with contextlib.suppress(AttributeError):
                    del fn.__dynamo_disable
