"""Feeds of a run: checks, conversion to tensors, merging of several places' batches."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fleetx.static.errors import FeedError
from fleetx.static.graph.dtypes import dtype_name, to_numpy, to_torch
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.readers.lod_tensor import concat_lod_tensors


class FeedCheck:
    """Checks and converts the values fed to a variable."""

    def __init__(self, var: Variable, strict: bool, parts: int) -> None:
        self.name = var.name
        self.parts = parts
        self.is_data = var.is_data
        self.checked = var.need_check_feed or (var.is_data and strict)
        self.shape = var.shape
        self.lod_level = var.lod_level
        self.dtype = None if var.dtype is None else to_torch(var.dtype)
        self.numpy_dtype = None if var.dtype is None else to_numpy(var.dtype)
        # Most values only need a check of type and shape.
        self._plain = not self.lod_level and self.dtype not in (None, torch.bfloat16)

    def convert(self, value: Any, device: torch.device, has_lod: bool = False) -> torch.Tensor:
        """Return the value as a tensor on the device; errors name the variable."""
        if type(value) is np.ndarray:
            if value.dtype == self.numpy_dtype and value.flags.writeable and self._plain:
                try:
                    tensor = torch.from_numpy(value)
                except ValueError:  # negative strides: taken below, with a copy
                    pass
                else:
                    if self.checked:
                        self._check_shape(tensor)
                    return tensor if device.type == "cpu" else tensor.to(device)
            array: Any = value
        elif isinstance(value, torch.Tensor):
            array = None
        elif isinstance(value, bool | int | float | list | tuple | np.generic):
            array = self._from_python(value)
        elif hasattr(value, "__array__"):
            array = np.asarray(value)
        else:
            raise TypeError(
                f"feed of {self.name!r} must be an array, a tensor or a number, not "
                f"{type(value).__name__}."
            )
        if array is None:
            tensor = value
        else:
            if array.dtype == object:
                raise TypeError(
                    f"feed of {self.name!r} holds rows of different lengths; pad them, or "
                    "declare the variable "
                    "with lod_level=1 and feed a LoDTensor."
                )
            if not array.flags.writeable or any(s < 0 for s in array.strides):
                array = array.copy()
            if array.dtype == np.uint16 and self.dtype == torch.bfloat16:
                tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
            else:
                tensor = torch.from_numpy(array)
        if self.checked:
            self._check(tensor, has_lod)
        return tensor if tensor.device == device else tensor.to(device)

    def _from_python(self, value: Any) -> np.ndarray[Any, Any]:
        try:
            array = np.array(value, dtype=self.numpy_dtype)
            given = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise TypeError(
                f"feed of {self.name!r} cannot be converted to {self.numpy_dtype}: {error}."
            ) from error
        if given.dtype.kind == "f" and array.dtype.kind in "iu" and (given != array).any():
            raise TypeError(
                f"feed of {self.name!r} holds {given[given != array][0]}, but the variable holds "
                f"whole numbers ({self.numpy_dtype})."
            )
        return array.reshape(1) if array.ndim == 0 and self.shape == (1,) else array

    def blame(self, tensor: torch.Tensor, error: Exception) -> None:
        """Raise if this value of a failed run does not match the variable's declaration."""
        if self.is_data and not self.checked:
            try:
                self._check(tensor, bool(self.lod_level))
            except ValueError as reason:
                raise reason from error

    def _check(self, tensor: torch.Tensor, has_lod: bool) -> None:
        if tensor.dtype != self.dtype and self.dtype is not None:
            raise FeedError(
                f"feed of {self.name!r} must have data type {dtype_name(self.dtype)!r}, not "
                f"{dtype_name(tensor.dtype)!r}."
            )
        if not self.lod_level and not has_lod:  # the number of rows of sequences may vary
            self._check_shape(tensor)

    def _check_shape(self, tensor: torch.Tensor) -> None:
        wanted, given = self.shape, tensor.shape
        if len(wanted) == len(given) and wanted[1:] == given[1:] and wanted[:1] == (-1,):
            return
        each = list(given)
        if self.parts > 1 and each and each[0] != wanted[0]:
            each[0] = -(-each[0] // self.parts)
        if len(wanted) != len(each) or any(
            w != g and w >= 0 for w, g in zip(wanted, each, strict=True)
        ):
            raise FeedError(
                f"feed of {self.name!r} must have {len(wanted)} dimensions, shape {wanted}, but "
                f"has shape {each} on each device."
            )


def warn_of_empty_batch(name: str, value: torch.Tensor) -> None:
    """Warn that the batch of a training step is empty."""
    warnings.warn(
        f"The batch of this training step is empty ({name} has the shape {tuple(value.shape)}): it "
        "adds nothing to the gradients, and a mean over it is NaN.",
        stacklevel=4,
    )


def check_feed_names(program: Program, names: Sequence[str], *, strict: bool) -> None:
    """Raise, or warn if not `strict`, if a program has no variable of the name of a feed."""
    block = program.global_block()
    unknown = [name for name in names if not block.has_var(name)]
    if not unknown:
        return
    if strict:
        known = [v.name for v in block.vars.values() if v.is_data]
        raise ValueError(
            f"feed has a value for {unknown[0]!r}, but the program has no variable of that name; "
            f"its data variables are {known}."
        )
    warnings.warn(
        f"feed has a value for {unknown[0]!r}, but the program does not have it, or pruned it.",
        stacklevel=4,
    )


def merge_feeds(feeds: Sequence[Any]) -> dict[str, Any]:
    """Return one feed for the list of feeds that a DataLoader yields for several devices."""
    if not all(isinstance(f, Mapping) for f in feeds):
        raise TypeError("feed of Executor.run must be a dict, or a list of dicts.")
    if len(feeds) == 1:
        return dict(feeds[0])
    return {name: concat_lod_tensors([f[name] for f in feeds]) for name in feeds[0]}


def with_readers(program: Program, feed: Mapping[str, Any], batches: int) -> dict[str, Any]:
    """Return the feed extended by the program's readers: this many batches, concatenated."""
    merged = dict(feed)
    for reader in program.binding.readers:
        if not all(n in merged for n in reader.output_names):
            merged.update(merge_feeds([reader.next_feed() for _ in range(batches)]))
    return merged
