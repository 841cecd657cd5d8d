"""The assignment of parameter slices to servers, with Paddle 1.8's names.

Parameters and gradients are sliced into `<name>.block<i>`; in synchronous training with several
workers a worker's gradients end with `.trainer_<i>`. Everything is derived from the program of
`minimize`, by the roles of its ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetx.paddle_rules.server_config import DistributeTranspilerConfig, RoundRobin
from fleetx.ps.tables.table_spec import BlockSpec
from fleetx.ps.wire.partition import slice_parameter
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program

LOOKUPS = ("lookup_table", "lookup_table_v2")
SHARED = ("Param", "Grad", "LearningRate", "Beta1Tensor", "Beta2Tensor")
"""The inputs of updates that are not state of a parameter."""
_CLIPS = "@CLIP"  # the scope of clips by the norm of all gradients
_SCHEDULES = (OpRole.LRSched, OpRole.LRSched | OpRole.Optimize)


@dataclass(frozen=True)
class Piece:
    """A slice of a parameter, the same slice of its gradient, and the server that has both."""

    param: BlockSpec
    grad: BlockSpec
    endpoint: str


@dataclass
class Layout:
    """How a program is divided between workers and servers."""

    config: DistributeTranspilerConfig
    endpoints: list[str]
    trainer_id: int
    trainers: int
    sync: bool
    updates: list[Operator] = field(default_factory=list)
    """Updates with penalties and clips, which move to the servers."""
    clips: list[Operator] = field(default_factory=list)
    """Clips by the norm of all gradients, which stay on workers."""
    schedule: list[Operator] = field(default_factory=list)
    """The ops that compute the learning rate."""
    grad_of: dict[str, str] = field(default_factory=dict)
    """The gradient of each parameter."""
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    """The pieces of each parameter."""
    sent: list[str] = field(default_factory=list)
    """The parameters, in the order in which `send` ops are written."""
    geo: bool = False
    """Whether workers update locally, and send their changes since the last exchange."""
    lookups: dict[str, list[Operator]] = field(default_factory=dict)
    """The look-ups in each parameter whose rows are fetched."""

    @property
    def suffix(self) -> str:
        """The suffix of this worker's gradients."""
        return self.suffix_of(self.trainer_id) if self.sync and self.trainers > 1 else ""

    @property
    def adds_up(self) -> bool:
        """Whether servers average the gradients of all workers."""
        return self.sync or (self.config.completely_not_async and self.trainers > 1)

    @staticmethod
    def suffix_of(worker: int) -> str:
        """Return the suffix of a worker's gradients."""
        return f".trainer_{worker}"

    def on(self, endpoint: str) -> list[Piece]:
        """Return the pieces on a server, in the order in which they are sent."""
        found = [piece for name in self.sent for piece in self.pieces[name]]
        return [piece for piece in found if piece.endpoint == endpoint]

    def piece_of(self, param: str, endpoint: str) -> Piece | None:
        """Return the piece of a parameter on a server, or None."""
        return next((p for p in self.pieces[param] if p.endpoint == endpoint), None)


def lay_out(
    main: Program,
    config: DistributeTranspilerConfig,
    endpoints: Sequence[str],
    trainer_id: int,
    trainers: int,
    *,
    sync: bool,
) -> Layout:
    """Assign the parameters of a training program to servers."""
    geo = config.geo_sgd_mode and not sync
    found = Layout(config, list(endpoints), trainer_id, trainers, sync, geo=geo)
    block = main.global_block()
    for op in block.ops:
        if op.op_role == OpRole.Optimize:
            if _CLIPS in str(op.attr("op_namescope")):
                found.clips.append(op)
                continue
            found.updates.append(op)
            pair = op.attr("op_role_var")
            if pair and pair[0] not in found.grad_of:
                found.grad_of[pair[0]] = pair[1]
        elif op.op_role in _SCHEDULES:
            found.schedule.append(op)
    dispatcher = (config.split_method or RoundRobin)(found.endpoints)
    found.sent = [n for n in found.grad_of if getattr(block.var(n), "trainable", True)]
    order = found.sent
    if not config.slice_var_up:  # whole parameters would be assigned by their kinds
        order = list(order)
        np.random.RandomState(main.random_seed).shuffle(order)
    for name in order:
        found.pieces[name] = _pieces(found, dispatcher, name, block.var(name).shape)
    found.pieces = {name: found.pieces[name] for name in found.sent}
    found.sent = order
    for name in found.pieces:
        reads = [op for op in block.ops if name in op.input_arg_names and op.type in LOOKUPS]
        served = [op for op in reads if op.attr("is_sparse") or op.attr("is_distributed")]
        if served:
            found.lookups[name] = [op for op in served if op.backward_id is None]
    return found


def _pieces(found: Layout, dispatcher: Any, name: str, shape: Sequence[int]) -> list[Piece]:
    config, grad = found.config, found.grad_of[name]
    cut: dict[str, Any] = {
        "servers": len(found.endpoints),
        "slice_var_up": config.slice_var_up,
        "min_block_size": config.min_block_size,
    }
    params = slice_parameter(name, shape, **cut)
    grads = slice_parameter(grad, shape, **cut)
    places = dispatcher.dispatch(params)
    return [Piece(*each) for each in zip(params, grads, places, strict=True)]
