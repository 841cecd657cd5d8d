"""Paddle's text format of sparse tables, as its 2.0 and 2.1 servers save it.

A folder `<table>_txt` has `<table>.block<i>.txt` and `.meta` for server i. A line is `id`, a tab,
and the row's numbers with a comma after each; 2.1 puts a count, the days unseen and whether the id
was admitted between them. `.meta` gives the names (`row_names=Param,Moment1,…`) and widths
(`row_dims=`) of the columns. Ids are unsigned; server i has those with id % servers = i.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.atomic import atomic_files

# Part of Paddle's rows, but not of our tables: every push may send another one.
_LEFT_OUT = "LearningRate"
_WRAP = 1 << 64

Pieces = Iterable[tuple[Tensor, Mapping[str, Tensor]]]


def write_text(
    dirname: str | os.PathLike[str],
    name: str,
    pieces: Pieces,
    *,
    columns: Mapping[str, int],
    blocks: int = 1,
) -> None:
    """Write rows for `blocks` servers of Paddle.

    They are given in pieces of ids and named columns; `columns` are their names and widths.
    """
    counts = [0] * blocks
    folder = f"{name}_txt"
    with atomic_files(dirname) as files:
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(files.open(f"{folder}/{name}.block{number}.txt"))
                for number in range(blocks)
            ]
            for ids, found in pieces:
                _write_rows(streams, counts, ids, [found[slot] for slot in columns])
        for number in range(blocks):
            meta = (
                f"param={name}\nshard_id={number}\nrow_names={','.join(columns)}\n"
                f"row_dims={','.join(map(str, columns.values()))}\ncount={counts[number]}\n"
            )
            files.write(f"{folder}/{name}.block{number}.meta", meta.encode())


def _write_rows(
    streams: Sequence[BinaryIO], counts: list[int], ids: Tensor, columns: Sequence[Tensor]
) -> None:
    values = torch.cat(list(columns), dim=1)
    # Enough digits to restore the same numbers.
    number = "%.9g," if values.dtype is torch.float32 else "%.17g,"
    line = "%d\t" + number * values.shape[1] + "\n"
    texts: list[list[str]] = [[] for _ in streams]
    for key, row in zip(ids.tolist(), values.tolist(), strict=True):
        key %= _WRAP
        texts[key % len(streams)].append(line % (key, *row))
    for block, text in enumerate(texts):
        streams[block].write("".join(text).encode())
        counts[block] += len(text)


def read_text(
    dirname: str | os.PathLike[str], name: str, *, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Read all blocks of a table and return a state for `SparseTable.load_state_dict`."""
    folder = Path(dirname) / f"{name}_txt"
    paths = sorted(folder.glob(f"{name}.block*.txt"))
    if not paths:
        raise FileNotFoundError(f"there is no {name}.block<i>.txt in {str(folder)!r}.")
    blocks = [_Block(path, dtype) for path in paths]
    if len({tuple(block.widths.items()) for block in blocks}) != 1:
        raise FormatError(str(folder), "its blocks differ in row_names or row_dims.")
    ids = torch.cat([block.ids for block in blocks])
    if len(ids.unique()) != len(ids):
        raise FormatError(str(folder), "has an id twice.")
    values = torch.cat([block.values for block in blocks])
    use = torch.cat([block.use for block in blocks])  # count, days unseen, admitted
    admitted = use[:, 2] != 0
    widths = blocks[0].widths
    columns = dict(zip(widths, values.split(list(widths.values()), 1), strict=True))
    state = {slot: value[admitted] for slot, value in columns.items() if slot != _LEFT_OUT}
    today = use[:, 1].max() if len(use) else torch.tensor(0)
    state.update(
        ids=ids[admitted],
        score=use[admitted, 0].float(),
        seen=(today - use[:, 1])[admitted],
        clock=today.reshape(1),
        waiting_ids=ids[~admitted],
        waiting_counts=use[~admitted, 0],
    )
    return state


class _Block:
    """One server's file, parsed and validated."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        self.widths, count = _read_meta(path.with_suffix(".meta"))
        width = sum(self.widths.values())
        keys: list[int] = []
        uses: list[tuple[int, int, int]] = []
        rows: list[np.ndarray] = []
        with path.open(encoding="ascii", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    key, use, row = _parse(line, width, dtype)
                except ValueError as error:
                    raise FormatError(str(path), f"line {number}: {error}.") from error
                keys.append(key)
                uses.append(use)
                rows.append(row)
        if len(keys) != count:
            raise FormatError(str(path), f"has {len(keys)} rows; its .meta says {count}.")
        self.ids = torch.tensor(keys, dtype=torch.int64)
        self.use = torch.tensor(uses, dtype=torch.int64).reshape(-1, 3)
        found = np.concatenate(rows) if rows else np.empty(0)
        self.values = torch.from_numpy(found).to(dtype).reshape(-1, width)


def _parse(line: str, width: int, dtype: torch.dtype) -> tuple[int, tuple[int, int, int], Any]:
    fields = line.rstrip("\n").split("\t")
    if len(fields) not in (2, 5):
        raise ValueError(f"has {len(fields)} fields between tabs instead of 2 or 5")
    key = int(fields[0])
    if not -(_WRAP >> 1) <= key < _WRAP:
        raise ValueError(f"{key} is not a 64-bit id")
    numbers = fields[-1].rstrip(",").split(",")
    if len(numbers) != width:
        raise ValueError(f"has {len(numbers)} numbers; the .meta says {width}")
    row = np.array(numbers, dtype=np.float32 if dtype is torch.float32 else np.float64)
    use = (1, 0, 1) if len(fields) == 2 else (int(fields[1]), int(fields[2]), int(fields[3]))
    return (key + (_WRAP >> 1)) % _WRAP - (_WRAP >> 1), use, row


def _read_meta(path: Path) -> tuple[dict[str, int], int]:
    """Return the widths by name, and the number of rows."""
    pairs: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            if not equals:
                raise FormatError(str(path), f"has a line without '=': {line!r}.")
            pairs[key] = value
    try:
        names = pairs["row_names"].split(",")
        widths = dict(zip(names, map(int, pairs["row_dims"].split(",")), strict=True))
        count = int(pairs["count"])
    except KeyError as error:
        raise FormatError(str(path), f"lacks {error.args[0]!r}.") from error
    except ValueError as error:
        raise FormatError(
            str(path), f"has an invalid row_names, row_dims or count ({error})."
        ) from error
    if "Param" not in widths or min(widths.values()) < 1:
        raise FormatError(str(path), "has no 'Param' in row_names, or a width below 1.")
    return widths, count
