"""Collating: one batch from a list of samples."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fleetx.static.readers.lod_tensor import LoDTensor


def default_collate_fn(batch: Sequence[Any]) -> Any:
    """Stack the samples field by field: arrays along a new first dimension, numbers to an array.

    Samples may be arrays, tensors, numbers, text, and lists, tuples or dicts of these.
    """
    sample = batch[0]
    if isinstance(sample, np.ndarray):
        return np.stack(batch, axis=0)
    if isinstance(sample, torch.Tensor):
        return torch.stack(list(batch), dim=0)
    if isinstance(sample, LoDTensor):
        return np.stack([item.numpy() for item in batch], axis=0)
    if isinstance(sample, numbers.Number | np.generic):
        return np.array(batch)
    if isinstance(sample, str | bytes):
        return list(batch)
    if isinstance(sample, Mapping):
        return {key: default_collate_fn([item[key] for item in batch]) for key in sample}
    if isinstance(sample, Sequence):
        counts = {len(item) for item in batch}
        if len(counts) != 1:
            raise RuntimeError(
                f"The samples of a batch have different numbers of fields: {sorted(counts)}."
            )
        return [default_collate_fn(fields) for fields in zip(*batch, strict=True)]
    raise TypeError(
        "A sample holds arrays, tensors, numbers, text, lists, tuples or dicts, not "
        f"{type(sample).__name__}."
    )


def default_convert_fn(batch: Any) -> Any:
    """Return what a dataset of ready batches gives, with tuples as lists."""
    if isinstance(batch, Mapping):
        return {key: default_convert_fn(value) for key, value in batch.items()}
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        return [default_convert_fn(value) for value in batch]
    return batch


def map_leaves(function: Any, value: Any) -> Any:
    """Apply a function to everything that is not a list, tuple or dict."""
    if isinstance(value, Mapping):
        return {key: map_leaves(function, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_leaves(function, item) for item in value]
    return function(value)
