"""The samples of an evaluation: `open_samples()`.

Samples are numbered, have an id each, and are read by range, in any order and by any process; so
memory contains only a few batches, regardless of the number of samples.
"""

from __future__ import annotations

import contextlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.evaluation.evaluation_error import EvaluationError
from fleetx.evaluation.stored_arrays import StoredArray, stored_arrays
from fleetx.serving.tensor_spec import TensorSpec

Arrays = dict[str, np.ndarray]

IDS = "sample_ids"
"""The name of the ids' array in a file of samples or vectors."""


def ids_of(rows: np.ndarray) -> list[str]:
    """Return ids that were stored as numbers, as text, or as rows of UTF-8 bytes."""
    if rows.ndim == 2:  # padded with zeros
        return [bytes(row).rstrip(b"\0").decode("utf-8", "replace") for row in rows]
    return [str(value) for value in rows.tolist()]


@dataclass(frozen=True, kw_only=True)
class Samples(ABC):
    """The inputs of a model for a number of samples; can be sent to another process."""

    limit: int | None = None
    """The maximum number of samples, the first ones; None for all."""

    @property
    @abstractmethod
    def total(self) -> int:
        """The number of stored samples."""

    def __len__(self) -> int:
        return self.total if self.limit is None else min(self.limit, self.total)

    @abstractmethod
    def ids(self, start: int, stop: int) -> list[str]:
        """Return the ids of a range."""

    @abstractmethod
    def read(self, start: int, stop: int) -> Arrays:
        """Return the inputs of a range, one row per sample."""

    def sources(self, start: int, stop: int) -> list[str]:
        """Return what an adapter may send instead of inputs: the samples' files, or their ids."""
        return self.ids(start, stop)

    @property
    @abstractmethod
    def id_width(self) -> int:
        """The number of bytes of the longest id."""

    def variants(self, start: int, stop: int) -> Iterator[tuple[str, Arrays]]:
        """Yield the same samples prepared in other ways, each with a description, if there are any.

        The description completes the sentence "the endpoint seems to ...".
        """
        return iter(())


@dataclass(frozen=True)
class ArraySamples(Samples):
    """Samples that are rows of arrays in a file."""

    inputs: Mapping[str, StoredArray]
    specs: Sequence[TensorSpec]
    stored_ids: StoredArray | None = None

    @property
    def total(self) -> int:
        """The number of stored samples."""
        return next(iter(self.inputs.values())).shape[0]

    def ids(self, start: int, stop: int) -> list[str]:
        """Return the ids of a range; the row numbers if the file has no ids."""
        if self.stored_ids is None:
            return [str(row) for row in range(start, stop)]
        return ids_of(self.stored_ids.read(start, stop))

    @property
    def id_width(self) -> int:
        """The number of bytes of the longest id."""
        if self.stored_ids is not None and len(self.stored_ids.shape) == 2:
            return self.stored_ids.shape[1]
        count = self.total
        if self.stored_ids is None:
            return len(str(max(count - 1, 0)))
        blocks = (self.ids(at, min(at + 65536, count)) for at in range(0, count, 65536))
        return max((len(each.encode()) for block in blocks for each in block), default=1)

    def read(self, start: int, stop: int) -> Arrays:
        """Return the inputs of a range, in the model's types."""
        return {
            spec.name: self.inputs[spec.name].read(start, stop).astype(spec.dtype, copy=False)
            for spec in self.specs
        }


@contextlib.contextmanager
def open_samples(
    path: Path,
    specs: Sequence[TensorSpec],
    *,
    names: Mapping[str, str] | None = None,
    limit: int | None = None,
    pictures: Mapping[str, Any] | None = None,
) -> Iterator[Samples]:
    """Open samples for a model with these inputs.

    Args:
        path: a file with one row per sample, a list of photographs, or the folder of one.
        specs: the model's inputs.
        names: the array of each input, if the names differ.
        limit: the maximum number of samples, the first ones.
        pictures: the preprocessing of photographs; see `image_samples`.

    Raises:
        EvaluationError: if the samples do not match the model.
    """
    if not path.exists():
        raise FileNotFoundError(f"there are no samples at {str(path)!r}; pass them with --data.")
    with tempfile.TemporaryDirectory(prefix="fleetx-samples-") as folder:
        if path.is_dir() or path.suffix == ".txt":
            from fleetx.evaluation.image_samples import image_samples  # needs other packages

            samples: Samples = image_samples(path, specs, **(pictures or {}))
        else:
            arrays = stored_arrays(path, Path(folder))
            samples = _array_samples(path, arrays, specs, names or {})
        yield replace(samples, limit=limit)


def _array_samples(
    path: Path,
    arrays: dict[str, StoredArray],
    specs: Sequence[TensorSpec],
    names: Mapping[str, str],
) -> ArraySamples:
    ids = arrays.pop(IDS, None)
    for name in names:
        if name not in {spec.name for spec in specs}:
            known = ", ".join(spec.name for spec in specs)
            raise EvaluationError(f"--input names {name!r}, but the model's inputs are {known}.")
    chosen = {}
    for spec in specs:
        stored = arrays.get(names.get(spec.name, spec.name))
        if stored is None and len(specs) == len(arrays) == 1 and not names:
            (stored,) = arrays.values()
        if stored is None:
            there = ", ".join(map(repr, arrays)) or "none"
            raise EvaluationError(
                f"{path} has no array {names.get(spec.name, spec.name)!r} for the model's input; "
                f"its arrays are {there}: select one with --input {spec.name}=ARRAY."
            )
        _check(path, stored, spec)
        chosen[spec.name] = stored
    counts = {name: stored.shape[0] for name, stored in chosen.items()}
    if ids is not None:
        counts[IDS] = ids.shape[0] if ids.shape else 0
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise EvaluationError(f"the arrays of {path} must have equally many rows, but {found}.")
    if not chosen or not next(iter(counts.values())):
        raise EvaluationError(f"{path} holds no samples.")
    return ArraySamples(chosen, tuple(specs), ids)


def _check(path: Path, stored: StoredArray, spec: TensorSpec) -> None:
    wanted = np.dtype(spec.dtype)
    if not np.can_cast(stored.dtype, wanted, "same_kind") or stored.dtype.kind != wanted.kind:
        raise EvaluationError(
            f"{path} holds {stored.dtype} for input {spec.name!r}, but the model takes {wanted}; "
            "save the samples in the model's types."
        )
    # The first dimension is that of the samples, regardless of the model's specification.
    if not stored.shape or not spec.fits((spec.shape[0], *stored.shape[1:])):
        raise EvaluationError(
            f"{path} holds an array of shape {list(stored.shape)} for input {spec.name!r}, but "
            f"the model takes {spec}."
        )
