"""The file of evaluation vectors: safetensors, one row per sample, with the samples' ids.

Every output of the model is a tensor with a row per sample; `sample_ids` holds the ids as UTF-8
bytes, padded with zeros. The header is written once the first rows give shapes and types, then
every row is written to its position: memory holds one batch. The file appears when it is complete.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.atomic import atomic_write
from fleetx.evaluation.evaluation_error import EvaluationError
from fleetx.evaluation.samples import IDS, ids_of
from fleetx.evaluation.stored_arrays import StoredArray, stored_arrays
from fleetx.serving.bodies import DTYPES, layout

Arrays = dict[str, np.ndarray]


class VectorsWriter:
    """Writer of rows in order; see `vectors_file`."""

    def __init__(
        self, stream: BinaryIO, count: int, id_width: int, metadata: Mapping[str, str]
    ) -> None:
        self._stream = stream
        self._count = count
        self._id_width = max(id_width, 1)
        self._metadata = dict(metadata)
        self._rows: dict[str, StoredArray] = {}
        self._done = 0

    def add(self, ids: Sequence[str], outputs: Arrays) -> None:
        """Write the next rows."""
        if IDS in outputs:
            raise EvaluationError(
                f"the model has an output {IDS!r}, the name of the ids in a file of vectors; "
                "save it under another name."
            )
        rows = {**outputs, IDS: self._encoded(ids)}
        if not self._rows:
            self._begin(rows)
        for name, array in rows.items():
            place = self._rows[name]
            if array.shape[1:] != place.shape[1:] or len(array) != len(ids):
                raise EvaluationError(
                    f"output {name!r} has shape {list(array.shape)} for {len(ids)} samples from "
                    f"{ids[0]!r} on, but began with rows of shape {list(place.shape[1:])}; a file "
                    "of vectors needs one row of the same shape for every sample."
                )
            size = math.prod(place.shape[1:]) * place.dtype.itemsize
            self._stream.seek(place.offset + self._done * size)
            self._stream.write(np.ascontiguousarray(array, place.dtype).data)
        self._done += len(ids)

    def finish(self) -> None:
        """Check that every sample has its row."""
        if self._done != self._count:
            raise EvaluationError(f"{self._done} of {self._count} samples were evaluated.")

    def _encoded(self, ids: Sequence[str]) -> np.ndarray:
        words = np.array([each.encode() for each in ids], dtype=f"S{self._id_width}")
        return words.view(np.uint8).reshape(len(ids), self._id_width)

    def _begin(self, rows: Arrays) -> None:
        tensors = {n: (row.dtype, (self._count, *row.shape[1:])) for n, row in rows.items()}
        try:
            head, places = layout(tensors, self._metadata)
        except TypeError as error:
            raise EvaluationError(f"vectors cannot be written: {error}") from error
        self._stream.write(head)
        self._rows = {
            name: StoredArray(Path(), offset, DTYPES[code], shape)
            for name, (code, shape, offset) in places.items()
        }


@contextlib.contextmanager
def vectors_file(
    path: str | os.PathLike[str], count: int, id_width: int, metadata: Mapping[str, str]
) -> Iterator[VectorsWriter]:
    """Open a file for `count` rows; it is renamed to its name when all are written."""
    with atomic_write(path) as stream:
        writer = VectorsWriter(stream, count, id_width, metadata)
        yield writer
        writer.finish()


@dataclass(frozen=True)
class Vectors:
    """Vectors in a file, read by range."""

    outputs: Mapping[str, StoredArray]
    stored_ids: StoredArray

    def __len__(self) -> int:
        return self.stored_ids.shape[0]

    def ids(self, start: int, stop: int) -> list[str]:
        """Return the ids of a range."""
        return ids_of(self.stored_ids.read(start, stop))

    def read(self, start: int, stop: int) -> Arrays:
        """Return the vectors of a range."""
        return {name: stored.read(start, stop) for name, stored in self.outputs.items()}


def open_vectors(path: str | os.PathLike[str]) -> Vectors:
    """Open a file that `vectors_file` wrote."""
    arrays = stored_arrays(Path(path), Path())
    if IDS not in arrays:
        raise FormatError(str(path), f"it has no {IDS!r}, so it is not a file of vectors.")
    return Vectors(arrays, arrays.pop(IDS))
