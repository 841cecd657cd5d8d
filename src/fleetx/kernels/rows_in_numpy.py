"""The fallback of the compiled row store (`_rows.c`): the same calls on NumPy's arrays.

Rows are in blocks that never move, as there; with a file, rows keep their positions, and the page
cache holds the pages in use. Values are added in order, and random numbers computed with the
same sequence of operations, so that all results have the same bits.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from fleetx.kernels.buffers import Array, mix, take_bytes, take_doubles, take_ids, take_numbers
from fleetx.kernels.row_updates_in_numpy import ROW_UPDATES

_BLOCK_BYTES = 8 << 20
_MOST_BYTES = 1 << 28
_MOST_ROWS = 2**32 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_64_BITS = 2**64 - 1


class RowStore:
    """Rows of `record` bytes."""

    def __init__(self, record: int, block: int = _BLOCK_BYTES) -> None:
        if not 1 <= record <= _MOST_BYTES:
            raise ValueError(f"a row cannot have {record} bytes.")
        if not 1 <= block <= _MOST_BYTES:
            raise ValueError(f"a block cannot have {block} bytes.")
        self._record = record
        self._shift = max(0, (block // record).bit_length() - 1)
        self._blocks: list[Array] = []
        self._file: tuple[int, str] | None = None
        self._hot_blocks = 0
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """The number of rows that fit."""
        return len(self._blocks) << self._shift

    def grow(self, n: int, /) -> None:
        """Grow to n rows; new ones are zero."""
        if n < 0:
            raise OverflowError("can't convert negative int to unsigned")
        if n > _MOST_ROWS:
            raise ValueError(f"a store cannot have {n} rows.")
        with self._lock:
            while self.limit < n:
                self._blocks.append(self._new_block())

    def _new_block(self) -> Array:
        if self._file is None:
            # Untouched memory takes no physical pages.
            return np.zeros(self.block, np.uint8)
        file, path = self._file
        size = -(-self.block // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        start = (len(self._blocks) - self._hot_blocks) * size
        try:
            # The space is reserved now: a full disk would end the process later.
            os.posix_fallocate(file, start, size)
            return np.frombuffer(mmap.mmap(file, size, offset=start), np.uint8)[: self.block]
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error

    @property
    def block(self) -> int:
        """The bytes by which the store grows."""
        return self._record << self._shift

    @property
    def has_file(self) -> bool:
        """Whether further rows are in a file."""
        return self._file is not None

    def spill(self, file: int, path: str, /) -> None:
        """Store further rows in this open file; those so far stay in memory."""
        with self._lock:
            if self._file is not None or not self._blocks:
                raise RuntimeError("a store with rows in memory takes one file.")
            try:
                self._file = (fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 0), path)
            except OSError as error:
                raise OSError(error.errno, error.strerror, path) from error
            self._hot_blocks = len(self._blocks)

    def __del__(self) -> None:
        file = getattr(self, "_file", None)  # missing if the constructor raised
        if file is not None:
            os.close(file[0])

    def gather(self, rows: Any, offset: int, width: int, out: Any, /) -> None:
        """Copy a field of rows; row -1 gives zeros."""
        rows, values = self._take(rows, offset, width, out, writable=True)
        whole = np.dtype((np.void, width))
        values = values.view(whole)
        with self._lock:
            self._check(rows, -1)
            there = np.flatnonzero(rows >= 0)
            if len(there) < len(rows):
                values[:] = np.zeros((), whole)
            for block, inside, places in self._by_block(rows[there]):
                values[there[places]] = self._field(block, offset, whole)[inside]

    def scatter(self, rows: Any, offset: int, width: int, values: Any, /) -> None:
        """Set a field of rows."""
        rows, values = self._take(rows, offset, width, values)
        whole = np.dtype((np.void, width))
        values = values.view(whole)
        with self._lock:
            self._check(rows, 0)
            for block, inside, places in self._by_block(rows):
                self._field(block, offset, whole)[inside] = values[places]

    def add(self, rows: Any, offset: int, width: int, values: Any, scale: float, /) -> None:
        """Add scaled numbers to a field of rows, in order."""
        given = values
        rows, _ = self._take(rows, offset, width, values)
        values = take_numbers(given, "values")
        size = values.itemsize
        if offset % size or self._record % size or width % size:
            raise ValueError("a field of numbers must consist of whole ones.")
        # The scale is rounded once to the precision of the values.
        with np.errstate(all="ignore"):
            values = values * values.dtype.type(scale)
        columns = width // size
        values = values.reshape(len(rows), columns)
        with self._lock:
            self._check(rows, 0)
            for block, inside, places in self._by_block(rows):
                _add(self._field(block, offset, values.dtype, columns), inside, values[places])

    def differ(self, rows: Any, /) -> bool:
        """Return whether no row occurs twice."""
        rows = take_ids(rows, "rows")
        with self._lock:
            self._check(rows, 0)
        return len(np.unique(rows)) == len(rows)

    def update(self, rule: str, rows: Any, grads: Any, settings: Any, /) -> None:
        """Update distinct rows, and the state behind them."""
        if rule not in ROW_UPDATES:
            raise ValueError(f"there is no update {rule} of rows.")
        formula, size, numbers_of = ROW_UPDATES[rule]
        settings = take_doubles(settings, "settings")
        if len(settings) != size:
            raise ValueError(f"{rule} has {size} settings, not {len(settings)}.")
        rows, grads = take_ids(rows, "rows"), take_numbers(grads, "grads")
        columns = len(grads) // len(rows) if len(rows) else 0
        numbers = numbers_of(columns, settings)
        if columns * len(rows) != len(grads) or (
            len(rows) and numbers * grads.itemsize != self._record
        ):
            raise ValueError(
                f"{len(rows)} rows of {self._record} bytes cannot have gradients of "
                f"{grads.nbytes} bytes."
            )
        grads = grads.reshape(len(rows), columns)
        with self._lock, np.errstate(all="ignore"):
            self._check(rows, 0)
            for block, inside, places in self._by_block(rows):
                records = self._field(block, 0, grads.dtype, numbers)
                records[inside] = formula(records[inside], grads[places], settings)

    def _take(
        self, rows: Any, offset: int, width: int, values: Any, *, writable: bool = False
    ) -> tuple[Array, Array]:
        if offset < 0 or width < 1 or offset + width > self._record:
            raise ValueError(
                f"bytes {offset} to {offset} + {width} are outside a row of {self._record} bytes."
            )
        rows = take_ids(rows, "rows")
        memory, _ = take_bytes(values, "values", writable=writable)
        if len(memory) != len(rows) * width:
            raise ValueError(f"{len(rows)} rows of {width} bytes do not make {len(memory)} bytes.")
        return rows, memory

    def _check(self, rows: Array, lowest: int) -> None:
        """Reject row numbers out of range before anything is copied: all or nothing."""
        if len(rows) and (rows.min() < lowest or rows.max() >= self.limit):
            raise IndexError("a row number is outside the store.")

    def _field(self, block: Array, offset: int, item: np.dtype[Any], *columns: int) -> Array:
        """Return a view of a field of all rows of a block, with one or several items per row."""
        strides = (self._record, item.itemsize)[: 1 + len(columns)]
        return np.ndarray((1 << self._shift, *columns), item, block, offset, strides)

    def _by_block(self, rows: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Yield each block, the rows inside it, and their positions, in order."""
        numbers = rows >> self._shift
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        for places in np.split(order, starts[1:]) if len(order) else []:
            number = int(numbers[places[0]])
            yield self._blocks[number], rows[places] - (number << self._shift), places


def _add(into: Array, rows: Array, values: Array) -> None:
    """Add rows of values to the rows with these indices, one after the other."""
    with np.errstate(all="ignore"):
        if len(np.unique(rows)) == len(rows):
            into[rows] += values
        else:
            np.add.at(into, rows, values)


def add_rows(rows: Any, values: Any, out: Any, /) -> None:
    """Add rows of numbers to the rows of `out` with these indices."""
    rows = take_ids(rows, "rows")
    values, out = take_numbers(values, "values"), take_numbers(out, "out", writable=True)
    width = len(values) // len(rows) if len(rows) else 0
    if (
        values.dtype != out.dtype
        or (len(rows) and len(values) % len(rows))
        or (width and len(out) % width)
    ):
        raise ValueError(
            f"{len(rows)} rows in {values.nbytes} bytes do not fit {out.nbytes} bytes."
        )
    if not width:
        return
    if rows.min() < 0 or rows.max() >= len(out) // width:
        raise IndexError("a row number is outside the array.")
    _add(out.reshape(-1, width), rows, values.reshape(-1, width))


def uniform(seed: int, ids: Any, out: Any, /) -> None:
    """Write numbers between 0 and 1 that depend only on seed, id and column."""
    ids, out = take_ids(ids, "ids"), take_doubles(out, "out", writable=True)
    if len(out) % len(ids) if len(ids) else len(out):
        raise ValueError(f"{len(ids)} ids do not share {len(out)} numbers.")
    if not len(out):
        return
    key = mix(np.array([(seed + _GOLDEN) & _64_BITS], np.uint64))
    start = mix(ids.view(np.uint64) + key) + key
    steps = np.arange(1, len(out) // len(ids) + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    # 52 bits plus one half: never 0, never 1.
    bits = mix(start[:, None] + steps) >> np.uint64(12)
    out[:] = ((bits.astype(np.float64) + 0.5) * 2.0**-52).reshape(-1)


def normal(values: Any, /) -> None:
    """Replace probabilities between 0 and 1 with the quantiles of the normal distribution.

    Uses P. J. Acklam's rational approximations, with relative errors below 1.2e-9.
    """
    values = take_doubles(values, "values", writable=True)
    low = 0.02425
    below, above = np.flatnonzero(values < low), np.flatnonzero(values > 1.0 - low)
    tails = _tail(values[below]), -_tail(1.0 - values[above])
    values[:] = _centre(values)
    values[below], values[above] = tails


# Coefficients of the highest power first.
_TAIL_OVER = (
    -7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
    -2.549732539343734e+00, 4.374664141464968e+00, 2.938163982698783e+00,
)  # fmt: skip
_TAIL_UNDER = (
    7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00, 1.0,
)  # fmt: skip
_CENTRE_OVER = (
    -3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02,
    1.383577518672690e+02, -3.066479806614716e+01, 2.506628277459239e+00,
)  # fmt: skip
_CENTRE_UNDER = (
    -5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
    6.680131188771972e+01, -1.328068155288572e+01, 1.0,
)  # fmt: skip


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    value = np.full_like(x, coefficients[0])
    for each in coefficients[1:]:
        value *= x
        value += each
    return value


def _tail(p: Array) -> Array:
    # NumPy has its own logarithm, which may differ in the last bit.
    logarithms = np.fromiter((_log(each) for each in p.tolist()), np.float64, len(p))
    with np.errstate(all="ignore"):
        q = np.sqrt(-2.0 * logarithms)
        return _polynomial(q, _TAIL_OVER) / _polynomial(q, _TAIL_UNDER)


def _log(p: float) -> float:
    if p > 0:
        return math.log(p)
    return -math.inf if p == 0 else math.nan


def _centre(p: Array) -> Array:
    q = p - 0.5
    r = q * q
    return _polynomial(r, _CENTRE_OVER) * q / _polynomial(r, _CENTRE_UNDER)
