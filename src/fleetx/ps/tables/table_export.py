"""Export of saved tables for other programs: Paddle's text, Parquet, or NumPy's npz.

Parquet has a column `id` and, for each named column, a list of numbers per row; it needs pyarrow.
An npz file has `ids` and an array per column; a dense table gives an array per parameter. A file
appears under its name when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.atomic import atomic_write
from fleetx.ps.tables.table_files import SavedTable
from fleetx.ps.tables.table_spec import DenseTableSpec, SparseTableSpec
from fleetx.ps.tables.table_text import write_text

FORMATS = ("text", "parquet", "npz")

Pieces = Iterator[tuple[Tensor, Mapping[str, Tensor]]]


def export_table(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str,
    with_state: bool = False,
    blocks: int = 1,
) -> int:
    """Write the saved table in folder `source` to `target`; return the number of rows
    (of a dense table, of parameters).

    `target` is a file, or for "text" a folder. `with_state` writes the optimizer's state too.
    `blocks` is the number of servers that will read the text.
    """
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is not known: use {', '.join(FORMATS)}.")
    saved = SavedTable(source)
    spec, state = saved.part(0)
    if isinstance(spec, DenseTableSpec):
        if format != "npz":
            raise FormatError(str(source), f"holds a dense table; write it as npz, not {format}.")
        return _write_dense(saved, Path(target), with_state)
    names = [name for name, value in state.items() if value.dim() == 2]
    names = ["Param", *sorted(set(names) - {"Param"})] if with_state else ["Param"]
    widths = {name: state[name].shape[1] for name in names}
    total = 0

    def pieces() -> Pieces:
        nonlocal total
        for found, part in saved.all_parts():
            if not isinstance(found, SparseTableSpec) or set(names) - set(part):
                raise FormatError(str(source), "its parts do not have the same columns.")
            ids, order = part["ids"].sort()
            total += len(ids)
            yield ids, {name: part[name][order] for name in names}

    if format == "text":
        write_text(target, saved.name, pieces(), columns=widths, blocks=blocks)
    elif format == "parquet":
        _write_parquet(Path(target), pieces(), widths, spec.dtype)
    else:
        parts = list(pieces())
        arrays = {name: torch.cat([columns[name] for _, columns in parts]) for name in names}
        _write_npz(Path(target), {"ids": torch.cat([ids for ids, _ in parts]), **arrays})
    return total


def _write_npz(target: Path, arrays: Mapping[str, Tensor]) -> None:
    plain: dict[str, Any] = {name: value.numpy() for name, value in arrays.items()}
    with atomic_write(target) as stream:
        np.savez(stream, **plain)


def _write_dense(saved: SavedTable, target: Path, with_state: bool) -> int:
    """Write whole parameters, each concatenated from its slices in order."""
    slices: dict[tuple[str, str], list[tuple[int, Tensor]]] = {}
    for found, state in saved.all_parts():
        blocks = found.blocks if isinstance(found, DenseTableSpec) else ()
        for block in blocks:
            for key, value in state.items():
                owner, _, slot = key.rpartition("/")
                if owner == block.name and (slot == "Param" or with_state):
                    slices.setdefault((block.parameter, slot), []).append((block.start, value))
    arrays = {}
    for (parameter, slot), parts in slices.items():
        values = [value for _, value in sorted(parts, key=lambda part: part[0])]
        # A power or a count of steps is a scalar, the same in every slice.
        whole = values[0].numel() == 1 and slot != "Param"
        name = parameter if slot == "Param" else f"{parameter}/{slot}"
        arrays[name] = values[0] if len(values) == 1 or whole else torch.cat(values)
    _write_npz(target, arrays)
    return len({parameter for parameter, _ in slices})


def _write_parquet(target: Path, pieces: Pieces, widths: Mapping[str, int], dtype: str) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ModuleNotFoundError(
            "writing Parquet needs pyarrow: pip install 'fleetx[parquet]'."
        ) from error
    number = pa.float32() if dtype == "float32" else pa.float64()
    fields = [pa.field("id", pa.int64())]
    fields += [pa.field(name, pa.list_(number, width)) for name, width in widths.items()]
    schema = pa.schema(fields)
    with atomic_write(target) as stream, pq.ParquetWriter(stream, schema) as writer:
        for ids, columns in pieces:
            lists = [
                pa.FixedSizeListArray.from_arrays(pa.array(columns[n].reshape(-1).numpy()), width)
                for n, width in widths.items()
            ]
            writer.write_table(pa.Table.from_arrays([pa.array(ids.numpy()), *lists], schema=schema))
