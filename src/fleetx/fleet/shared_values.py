"""Communication of a script besides training: reductions, broadcast objects, and print."""

from __future__ import annotations

import builtins
import io
from typing import Any

import numpy as np
import torch

from fleetx.fleet.roles.identity import Identity

_MODES = ("sum", "mean", "max", "min")


class SharedValues(Identity):
    """Reductions that keep the type of their argument, broadcast of objects, and print."""

    def all_reduce(self, value: Any, mode: str = "sum") -> Any:
        """Return the sum, 'mean', 'max' or 'min' of a value over all workers, which must all call
        it.

        A tensor gives a tensor of its type on its device, an array an array, a list a list, and a
        Python number a Python number; the value itself stays as it is. A mean of integers is a
        float.
        """
        if mode not in _MODES:
            raise ValueError(f"unknown mode: {mode!r}; a reduction is one of {', '.join(_MODES)}.")
        wide = isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16
        total = self.util.all_reduce(value.float() if wide else value, mode.replace("mean", "sum"))
        if mode == "mean":
            total = total / self.worker_num()
        if isinstance(value, torch.Tensor):
            result = torch.as_tensor(total, device=value.device).detach().clone()
            is_whole = mode == "mean" and not value.dtype.is_floating_point
            return result if is_whole else result.to(value.dtype)
        if isinstance(value, np.ndarray | np.generic):
            return np.asarray(total)[()]
        return total.tolist() if hasattr(total, "tolist") else total

    def broadcast_object(self, value: Any, source: int = 0) -> Any:
        """Return worker `source`'s value on all workers, which must all call it.

        The value is made of tensors, numbers, strings, None, lists, tuples and dictionaries: what
        arrives never runs code. That of the other workers is ignored.
        """
        if not 0 <= source < self.worker_num():
            raise ValueError(f"there is no worker {source}: the job has {self.worker_num()}.")
        if self.worker_num() == 1:
            return value
        sent = np.zeros(0, np.uint8)
        if self.worker_index() == source:
            stream = io.BytesIO()
            torch.save(value, stream)
            sent = np.frombuffer(stream.getvalue(), np.uint8)
        found = self.util.all_gather(sent)[source]
        try:
            return torch.load(io.BytesIO(found.tobytes()), weights_only=True)
        except Exception as error:  # torch raises various errors for what it refuses
            raise TypeError(
                f"fleet.broadcast_object was given an object on worker {source} that is not made "
                "of tensors, numbers, strings, lists, tuples and dictionaries: send the parts of "
                f"it instead ({error})."
            ) from error

    def print(self, *values: Any, **options: Any) -> None:
        """Print on the first worker, with the arguments of Python's own print."""
        if self.is_first_worker():
            builtins.print(*values, **options)
