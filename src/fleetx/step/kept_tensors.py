"""The memory of tensors that autograd keeps for the backward pass.

Tensors may share memory, which counts once, until the last of them is freed: the peak is what a
worker holds of activations, also where forward and backward of several micro-batches alternate.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fleetx import torch_private
from fleetx.comm.divided_tensors import own_part


class KeptTensors:
    """Counts the bytes that are kept by what runs in its context, without those of parameters."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        own = [own_part(p.detach()) for p in parameters]
        self._is_meta = any(p.is_meta for p in own)
        # Storages are told apart by their objects, which must stay alive for that.
        self._apart = {id(storage): storage for storage in map(_storage, own)}
        self._live: dict[int, _Storage] = {}
        self.bytes = 0
        """What is kept now."""
        self.peak = 0
        """The most that was kept."""

    def hooks(self) -> Any:
        """Return a context in which tensors are counted."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _Kept.get)

    def _pack(self, tensor: Tensor) -> _Kept:
        with torch.no_grad():
            own = own_part(tensor)
        if own.is_meta != self._is_meta or _is_parameter(tensor):
            return _Kept(tensor)
        storage = _storage(own)
        key = id(storage)
        if key in self._apart:
            return _Kept(tensor)
        if key not in self._live:
            self._live[key] = _Storage(storage, storage.nbytes())
            self.bytes += storage.nbytes()
            self.peak = max(self.peak, self.bytes)
        self._live[key].tensors += 1
        return _Kept(tensor, lambda: self._free(key))

    def _free(self, key: int) -> None:
        entry = self._live[key]
        entry.tensors -= 1
        if not entry.tensors:
            del self._live[key]
            self.bytes -= entry.bytes


@dataclass
class _Storage:
    """Memory, and how many of the kept tensors are in it."""

    held: torch.UntypedStorage
    bytes: int
    tensors: int = 0


class _Kept:
    """A tensor that autograd keeps; tells when it no longer does."""

    def __init__(self, tensor: Tensor, freed: Callable[[], None] | None = None) -> None:
        self._tensor = tensor
        if freed is not None:
            weakref.finalize(self, freed).atexit = False

    def get(self) -> Tensor:
        return self._tensor


def _is_parameter(tensor: Tensor) -> bool:
    """Return whether a tensor is a parameter or a view of one, which may be gathered from parts."""
    base = torch_private.base_of(tensor)
    return isinstance(tensor, nn.Parameter) or isinstance(base, nn.Parameter)


def _storage(tensor: Any) -> torch.UntypedStorage:
    while hasattr(tensor, "elem"):  # torch's tensor of a collective that is under way
        tensor = tensor.elem
    return tensor.untyped_storage()  # type: ignore[no-any-return]
