"""Ops of programs that train with parameter servers.

They only call the program's link to the servers (`program.binding.servers`), which pushes and
pulls. `distributed_lookup_table` pulls the rows of a batch's unique ids and the index of every id
in them, so that a huge table becomes ordinary look-ups in these rows, with autograd's gradients.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from fleetx.kernels.loss_scale import unscaled
from fleetx.kernels.row_gradients import make_rows, rows_of
from fleetx.kernels.row_initializer import RowInitializer
from fleetx.static.graph.op_registry import Attr, Long, detached_op, effect_op, no_infer, op
from fleetx.static.run.server_link import Servers
from fleetx.static.shapes.lod import Lods, WithLod

_COMMON = {"endpoints": Attr("STRINGS", []), "trainer_id": 0}


def _link(ctx: Any) -> Servers:
    if ctx.servers is None:
        raise RuntimeError(
            "this program talks to parameter servers, but it was read from a file or made without "
            "fleet.distributed_optimizer(...).minimize(...): there is no job to talk to."
        )
    found: Servers = ctx.servers
    return found


@detached_op(
    "distributed_lookup_table", inputs="Ids*", outputs="Rows* Index* Keys*", infer=no_infer
)
def _distributed_lookup_table(
    ids: list[Tensor],
    *,
    table_names: list[str] = [],
    table_of_ids: list[int] = [],  # which table each of Ids is for
    padding_ids: list[Long] = [],  # per table, -1 for none
    lod: Lods,
    ctx: Any,
) -> tuple[list[Tensor], list[Any], list[Tensor]]:
    rows, places, keys = _link(ctx).pull_rows(table_names, table_of_ids, padding_ids, ids)
    lods = (lod or {}).get("Ids") or [None] * len(ids)
    index = [p if own is None else WithLod(p, own) for p, own in zip(places, lods, strict=True)]
    return rows, index, keys


@effect_op(
    "send",
    inputs="X*? Keys? LearningRate? Scale?",
    outputs="Out*?",
    attrs={**_COMMON, "is_sparse": 0},
    lod="none",
)
def _send(
    values: list[Tensor],
    keys: Tensor | None,
    rate: Tensor | None,
    scale: Tensor | None,
    *,
    send_varnames: list[str] = [],  # the parameters of X, or the table of rows
    initial: bool = False,
    share: float = 0.0,  # of rows in the mean of several runs, whose last one ends the step
    ctx: Any,
) -> list[Tensor]:
    """Push gradients; in a startup program, the initial rows of tables."""
    link = _link(ctx)
    number = None if rate is None else float(rate)
    if initial:
        link.give_rows(dict(zip(send_varnames, values, strict=True)), ctx.scope)
    elif keys is not None and share:
        rows = values[0] if scale is None else unscaled(values[0], float(scale))
        link.keep_rows(send_varnames[0], keys, rows * share, number)
    elif keys is not None:
        link.push_rows(send_varnames[0], keys, values[0], number)
    else:
        link.push_dense(dict(zip(send_varnames, values, strict=True)), number)
    return []


@effect_op("send_barrier", inputs="X*?", outputs="Out*?", attrs=_COMMON)
def _send_barrier(values: list[Tensor], *, ctx: Any) -> list[Tensor]:
    """Mark the end of this step's pushes."""
    _link(ctx).end_step()
    return []


@effect_op("agree_on_overflow", outputs="Out=X")
def _agree_on_overflow(found: Tensor, *, ctx: Any) -> Tensor:
    """Return whether the step overflowed on any worker."""
    return found.fill_(_link(ctx).agree_on_overflow(bool(found)))


@effect_op("recv", inputs="X*?", outputs="Out*?=X", attrs=_COMMON, lod="none")
def _recv(
    values: list[Tensor],
    *,
    recv_varnames: list[str] = [],
    initial: bool = False,
    ends_step: bool = False,
    ctx: Any,
) -> list[Tensor]:
    """Pull the parameters, in place."""
    link = _link(ctx)
    if initial:
        link.startup_was_run(ctx.scope)
        return values
    if ends_step:
        link.end_step()
    link.pull_dense(dict(zip(recv_varnames, values, strict=True)))
    return values


@effect_op("fetch_barrier", inputs="X*?", outputs="Out*?", attrs=_COMMON)
def _fetch_barrier(values: list[Tensor]) -> list[Tensor]:
    """Do nothing: `recv` has waited."""
    return []


@effect_op("split_byref", inputs="X", outputs="Out*", lod="none")
def _split_byref(x: Tensor, *, sections: list[int] = []) -> list[Tensor]:
    """Divide the rows among servers."""
    return list(x.split(sections))


@effect_op("split_selected_rows", inputs="X", outputs="Out*", lod="none")
def _split_selected_rows(x: Tensor, *, height_sections: list[Long] = []) -> list[Tensor]:
    """Divide selected rows among servers; each counts the rows of its section from 0."""
    ids, values = rows_of(x)
    found, start = [], 0
    for height in height_sections:
        mine = (ids >= start) & (ids < start + height)
        found.append(make_rows(ids[mine] - start, values[mine], height))
        start += height
    return found


@effect_op("fake_init", inputs="", lod="none")
def _fake_init(*, shape: list[Long] = []) -> Tensor:
    """Return zeros as a placeholder for a variable whose values are on the servers."""
    return torch.zeros(shape)


@effect_op(
    "listen_and_serv",
    inputs="X*?",
    outputs="",
    attrs={"endpoint": "", "pserver_id": 0, "Fanin": 1},
)
def _listen_and_serv(values: list[Tensor], *, ctx: Any) -> tuple[()]:
    """Serve until the workers have finished."""
    _link(ctx).serve()
    return ()


@op("lookup_saved_rows", inputs="Keys Rows Ids", infer=no_infer, grad=None)
def _lookup_saved_rows(
    keys: Tensor,
    rows: Tensor,
    ids: Tensor,
    *,
    squeeze: bool = False,
    padding_idx: Long = -1,
    first_rows: str = "",  # the table's specification as JSON, where rows make themselves
) -> Tensor:
    """Look up rows, by sorted ids, of a table that was saved from its servers."""
    if squeeze:
        ids = ids.squeeze(-1)
    flat = ids.reshape(-1).long()
    out = _unknown_rows(first_rows, flat, rows)
    if len(keys):
        places = torch.searchsorted(keys, flat).clamp_(max=len(keys) - 1)
        known = keys[places] == flat
        out[known] = rows[places[known]]
    if padding_idx >= 0:
        out[flat == padding_idx] = 0
    return out.reshape(*ids.shape, rows.shape[1])


def _unknown_rows(described: str, ids: Tensor, like: Tensor) -> Tensor:
    """Return the rows of unknown ids: their initial rows, or zeros if ids are admitted later."""
    if not described:
        return like.new_zeros(len(ids), like.shape[1])
    spec = json.loads(described)
    first = spec["initializer"]
    make = RowInitializer(
        first.get("kind", "zeros"),
        first.get("settings", {}),
        seed=spec["seed"],
        dim=like.shape[1],
        dtype=like.dtype,
    )
    return make(ids)
