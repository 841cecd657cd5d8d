"""Requests about tables: validation of a message's tensors, and the call on the table.

A request that does not fit its table is rejected here, before it is logged or applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fleetx.ps.tables.dense_table import DenseTable
from fleetx.ps.tables.make_table import Table
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import TableSpec
from fleetx.ps.tables.usage import check_served
from fleetx.ps.wire.assembly import Message, Tensors
from fleetx.ps.wire.messages import Kind, Problem, WireError

DenseValues = dict[str, Tensor]
Shapes = list[tuple[int, torch.dtype, tuple[int, ...]]]
Place = Callable[[Shapes], Tensors]
Rows = tuple[Tensor, Tensor, Tensor | None]

MOST_OCCURRENCES = 1 << 32
"""The count of an id in one push; sums over a whole message and all workers stay below 2**63."""


def known(value: float) -> float | None:
    """Return a number of a header; None if it is not set."""
    return None if math.isnan(value) else value


def clips_by_global_norm(spec: TableSpec) -> bool:
    """Return whether a table needs the norm of all gradients, on all servers."""
    clip = spec.optimizer.clip
    return clip is not None and clip.kind == "global_norm"


def dense_values(table: DenseTable, tensors: Tensors) -> DenseValues:
    """Return the tensors of a message by the names of the table's blocks."""
    blocks = table.spec.blocks
    values: DenseValues = {}
    for key, tensor in tensors:
        if key >= len(blocks):
            raise WireError(
                Problem.WRONG_SHAPE,
                f"table {table.spec.name!r} has {len(blocks)} blocks here and none of number {key}",
            )
        block = blocks[key]
        _require_type(table, tensor)
        if tuple(tensor.shape) != block.shape:
            raise WireError(
                Problem.WRONG_SHAPE,
                f"block {block.name!r} of table {table.spec.name!r} has shape {block.shape}, not "
                f"{tuple(tensor.shape)}",
            )
        values[block.name] = tensor
    if len(values) != len(tensors):
        raise WireError(Problem.MALFORMED, "a block came twice in one message")
    return values


def sparse_rows(table: SparseTable, tensors: Tensors) -> Rows:
    """Return the ids and rows of a push, and the count of each id if it was sent."""
    if len(tensors) not in (2, 3):
        raise WireError(Problem.MALFORMED, f"{len(tensors)} tensors instead of ids and rows")
    ids, rows = sparse_vector(table, tensors[0][1]), tensors[1][1]
    counts = _counts(table, tensors[2][1], len(ids)) if len(tensors) == 3 else None
    _require_type(table, rows)
    if tuple(rows.shape) != (len(ids), table.spec.dim):
        raise WireError(
            Problem.WRONG_SHAPE,
            f"rows of table {table.spec.name!r} for {len(ids)} ids have shape "
            f"{(len(ids), table.spec.dim)}, not {tuple(rows.shape)}",
        )
    return ids, rows, counts


def sparse_vector(table: SparseTable, ids: Tensor) -> Tensor:
    """Return ids, or numbers for them, after checking their type and shape."""
    if ids.dtype != torch.int64 or ids.dim() != 1:
        raise WireError(
            Problem.WRONG_SHAPE,
            f"ids for table {table.spec.name!r} are a list of 64-bit numbers, not {ids.dtype} of "
            f"shape {tuple(ids.shape)}",
        )
    return ids


def _counts(table: SparseTable, counts: Tensor, ids: int) -> Tensor:
    sparse_vector(table, counts)
    if len(counts) != ids:
        raise WireError(Problem.WRONG_SHAPE, f"{len(counts)} counts for {ids} ids")
    if ids and not 1 <= int(counts.min()) <= int(counts.max()) <= MOST_OCCURRENCES:
        raise WireError(
            Problem.BAD_REQUEST,
            f"counts for table {table.spec.name!r} are from 1 to {MOST_OCCURRENCES}, not from "
            f"{int(counts.min())} to {int(counts.max())}",
        )
    return counts


def _require_type(table: Table, tensor: Tensor) -> None:
    if str(tensor.dtype) != f"torch.{table.spec.dtype}":
        raise WireError(
            Problem.WRONG_SHAPE,
            f"table {table.spec.name!r} holds {table.spec.dtype}, not {tensor.dtype}",
        )


def check_spec(spec: TableSpec) -> None:
    """Reject a new table with rules that would never act; those in older logs are replayed."""
    try:
        check_served(spec)
    except SpecError as error:
        raise WireError(Problem.BAD_REQUEST, str(error)) from error


def check(table: Table, message: Message) -> None:
    """Reject a request that does not fit the table."""
    if message.header.kind == Kind.SET and not isinstance(table, DenseTable):
        raise WireError(
            Problem.BAD_REQUEST, f"the rows of {table.spec.name!r} initialise themselves"
        )
    if isinstance(table, DenseTable):
        dense_values(table, message.tensors)
    else:
        sparse_rows(table, message.tensors)


def push(table: Table, tensors: Tensors, *, rate: float | None, norm: float | None) -> None:
    """Apply gradients; `norm` is that of all gradients, for tables that clip by it."""
    if isinstance(table, DenseTable):
        table.push(dense_values(table, tensors), rate=rate, norm=norm)
    else:
        ids, rows, counts = sparse_rows(table, tensors)
        table.push(ids, rows, rate=rate, norm=norm, counts=counts)


def square_norm(table: Table, tensors: Tensors) -> float:
    """Return the sum of squares of gradients."""
    if isinstance(table, DenseTable):
        return table.square_norm(dense_values(table, tensors))
    ids, rows, _ = sparse_rows(table, tensors)
    return table.square_norm(ids, rows)


def add(table: Table, tensors: Tensors) -> None:
    """Add deltas to the values."""
    if isinstance(table, DenseTable):
        for block, delta in dense_values(table, tensors).items():
            table.add(block, delta)
    else:
        ids, rows, counts = sparse_rows(table, tensors)
        table.add(ids, rows, counts=counts)


def new_tensors(shapes: Shapes) -> Tensors:
    """Return tensors to fill."""
    return [(key, torch.empty(shape, dtype=dtype)) for key, dtype, shape in shapes]


def pull(table: Table, message: Message, place: Place) -> Tensors:
    """Return copies of the requested blocks (all if none is named) or rows."""
    if isinstance(table, SparseTable):
        ids = sparse_vector(table, message.only())
        (answer,) = place([(0, table.dtype, (len(ids), table.spec.dim))])
        table.pull(ids, out=answer[1])
        return [answer]
    blocks = range(len(table.spec.blocks))
    return _blocks(table, _wanted(table, message) if message.tensors else list(blocks), place)


def pushed(table: Table, message: Message, place: Place) -> Tensors:
    """Return copies of the blocks whose gradients a request has pushed."""
    if isinstance(table, SparseTable):
        raise WireError(Problem.BAD_REQUEST, f"a push to {table.spec.name!r} brings no rows back")
    return _blocks(table, [key for key, _ in message.tensors], place)


def _blocks(table: DenseTable, numbers: list[int], place: Place) -> Tensors:
    blocks = table.spec.blocks
    answers = place([(number, table.dtype, blocks[number].shape) for number in numbers])
    for number, out in answers:
        table.pull(blocks[number].name, out=out)
    return answers


def _wanted(table: DenseTable, message: Message) -> list[int]:
    wanted = message.only()
    if wanted.dtype != torch.int64 or wanted.dim() != 1:
        raise WireError(Problem.WRONG_SHAPE, "blocks are asked for by a list of numbers")
    numbers = wanted.tolist()
    if any(not 0 <= number < len(table.spec.blocks) for number in numbers):
        raise WireError(
            Problem.WRONG_SHAPE,
            f"table {table.spec.name!r} has {len(table.spec.blocks)} blocks here, not all of "
            f"{numbers}",
        )
    return numbers
