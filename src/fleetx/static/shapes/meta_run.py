"""Running torch functions on meta tensors without loading torch's compiler.

Many kernels for meta tensors are decompositions written in Python. They are hidden from Dynamo by a
wrapper that imports `torch._dynamo` on its first call, which takes two seconds: more than building
a whole ResNet. The wrapper keeps the hidden function as an attribute of the plain one and imports
nothing if it exists. As long as Dynamo is not loaded nothing can be traced, so the plain functions
are used as the hidden ones, and the attributes are removed afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator

from fleetx import torch_private

_lock = threading.RLock()
_functions = functools.cache(torch_private.functions_hidden_from_dynamo)


@contextlib.contextmanager
def without_loading_dynamo() -> Iterator[None]:
    """Keep `torch._dynamo` unloaded inside the block, if it is not loaded yet."""
    if torch_private.dynamo_is_loaded():
        yield
        return
    with _lock:
        for function in _functions():
            setattr(function, torch_private.HIDDEN_AS, function)
        try:
            yield
        finally:
            for function in _functions():
                vars(function).pop(torch_private.HIDDEN_AS, None)
