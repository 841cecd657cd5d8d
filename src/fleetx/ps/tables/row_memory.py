"""A memory limit for rows, and files for those that do not fit.

All tables of a server share one limit. A table takes memory as it grows, in blocks; when the limit
is reached, its further rows go into a file (`kernels/_row_store.h`), and rows are swapped so that
those in use are in memory. The file is unlinked as soon as it is open, so that nothing remains when
the server ends, for whatever reason.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import torch
from torch import Tensor

from fleetx.kernels import native

_BLOCK = 8 << 20
# A small limit is divided among several blocks.
_BLOCKS = 16
_SMALLEST = 1 << 12


class RowMemory:
    """The memory of a server for rows, in bytes, and the folder for the others."""

    def __init__(self, limit: int, folder: str | os.PathLike[str]) -> None:
        if limit < 1:
            raise ValueError(f"a server cannot keep its rows in {limit} bytes of memory.")
        self.limit = limit
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.left = limit
        """What is left of the limit; the first block of every table is taken in any case."""
        self._lock = threading.Lock()

    @property
    def block(self) -> int:
        """The size of the blocks in which stores of rows are to grow."""
        return max(_SMALLEST, min(_BLOCK, self.limit // _BLOCKS))

    def grow(self, store: native.RowStore, rows: int, name: str) -> int:
        """Allocate space for rows, in memory if possible; return the bytes of memory used.

        Every store has at least one block in memory. Raises OSError if the disk is full.
        """
        taken = 0
        while store.limit < rows and not store.has_file:
            with self._lock:
                fits = self.left >= store.block or store.limit == 0
                if fits:
                    self.left -= store.block
                    taken += store.block
            if fits:
                store.grow(store.limit + 1)
            else:
                self._spill(store, name)
        store.grow(rows)
        return taken

    def give_back(self, size: int) -> None:
        """Return the memory of a store that is no longer used."""
        with self._lock:
            self.left += size

    def _spill(self, store: native.RowStore, name: str) -> None:
        descriptor, path = self._new_file(name)
        try:
            store.spill(descriptor, path)
        finally:
            os.close(descriptor)

    def _new_file(self, name: str) -> tuple[int, str]:
        """Return an open file without a name, and the name that it had."""
        letters = "".join(each if each.isalnum() else "_" for each in name)[:80]
        descriptor, path = tempfile.mkstemp(prefix=f"rows-{letters}-", dir=self.folder)
        os.unlink(path)
        return descriptor, path

    def new_tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor in a file, for copies of rows that do not fit into memory either."""
        count = torch.Size(shape).numel()
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        descriptor, path = tempfile.mkstemp(prefix="copy-", dir=self.folder)
        try:
            os.posix_fallocate(descriptor, 0, count * dtype.itemsize)
            return torch.from_file(path, shared=True, size=count, dtype=dtype).reshape(shape)
        except OSError as error:
            raise OSError(error.errno, f"a copy of {name!r}: {error.strerror}", path) from error
        finally:
            os.close(descriptor)
            os.unlink(path)
