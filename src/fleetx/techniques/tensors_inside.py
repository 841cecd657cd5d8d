"""Map the tensors in the inputs or outputs of a model, however they are nested.

Tuples, named tuples, lists, dictionaries and dataclasses (and the outputs of transformers' models,
which are both) come back as new objects of the same kind.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def map_tensors(value: Any, change: Callable[[Tensor], Tensor], *, every: bool = False) -> Any:
    """Return `value` with each floating tensor in it replaced by `change` of it, or with `every`
    tensor."""
    if isinstance(value, Tensor):
        return change(value) if every or value.is_floating_point() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change, every=every) for item in value))
    if type(value) in (tuple, list):
        return type(value)(map_tensors(item, change, every=every) for item in value)
    if isinstance(value, Mapping) and hasattr(value, "__setitem__"):
        result: Any = copy.copy(value)
        for key, item in value.items():
            result[key] = map_tensors(item, change, every=every)
        return result
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        result = copy.copy(value)
        for field in dataclasses.fields(value):
            changed = map_tensors(getattr(value, field.name), change, every=every)
            object.__setattr__(result, field.name, changed)
        return result
    return value


def all_tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a value, in order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, note, every=True)
    return found
