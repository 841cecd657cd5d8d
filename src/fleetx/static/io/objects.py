"""paddle.save and paddle.load for plain objects: containers of tensors, numbers and text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fleetx.checkpoint.atomic import atomic_write
from fleetx.checkpoint.pickle_reader import STRUCTURED_NAMES
from fleetx.checkpoint.pickle_reader import load_object as _load_pickle
from fleetx.checkpoint.pickle_writer import dump_object
from fleetx.checkpoint.side_checksums import describe_beside, verify
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.run.scope import tensor_to_numpy


def _to_plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tensor_to_numpy(value)
    if isinstance(value, LoDTensor):
        return value.numpy()
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_to_plain(item) for item in value)
    return value


def _is_named_array(value: Any) -> bool:
    # How Paddle 2.x stores a tensor inside a container: (name, array).
    named = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
    return named and isinstance(value[1], np.ndarray)


def _to_arrays(value: Any) -> Any:
    if _is_named_array(value):
        return value[1]
    if isinstance(value, dict):
        return {key: _to_arrays(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_to_arrays(item) for item in value)
    return value


def save_object(obj: Any, path: str | os.PathLike[str], protocol: int = 4) -> None:
    """Save a tensor, an array, or a container of tensors, arrays, numbers and text to a file."""
    if os.path.basename(os.fspath(path)) == "":
        raise ValueError(f"{os.fspath(path)!r} is a folder; add the name of a file to it.")
    with atomic_write(path, describe_beside) as stream:
        dump_object(stream, _to_plain(obj), protocol=protocol)


def load_object(path: str | os.PathLike[str], *, keep_name_table: bool = False) -> Any:
    """Load a file of :func:`save_object` or `paddle.save`; tensors are returned as arrays."""
    verify(path)
    with open(path, "rb") as stream:
        result = _to_arrays(_load_pickle(stream, source=os.fspath(path)))
    if isinstance(result, dict) and not keep_name_table:
        result.pop(STRUCTURED_NAMES, None)
    return result
