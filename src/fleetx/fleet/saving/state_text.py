"""States as JSON and tensors: containers, numbers and text in one, tensors by path in the other."""

from __future__ import annotations

from typing import Any

import torch


def flatten(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value as JSON can hold it; tensors go to `tensors` under their path."""
    if isinstance(value, torch.Tensor):
        tensors[path] = value.detach()
        return {"@tensor": path}
    if isinstance(value, dict):
        return {
            "@dict": [[key, flatten(item, f"{path}/{key}", tensors)] for key, item in value.items()]
        }
    if isinstance(value, list | tuple):
        kind = "@tuple" if isinstance(value, tuple) else "@list"
        return {kind: [flatten(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"a checkpoint holds tensors, numbers, text and containers of them; {path} is a "
        f"{type(value).__name__}."
    )


def restore(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Return what `flatten` was given."""
    if not isinstance(value, dict):
        return value
    (kind, inside), *_ = value.items()
    if kind == "@tensor":
        return tensors[inside]
    if kind == "@dict":
        return {key: restore(item, tensors) for key, item in inside}
    restored = [restore(item, tensors) for item in inside]
    return tuple(restored) if kind == "@tuple" else restored
