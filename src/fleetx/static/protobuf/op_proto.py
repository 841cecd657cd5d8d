"""Definitions of ops as Paddle's OpProto: slots and attributes.

Tools and tests that build ops from their definitions read these; see `op_registry` for the
definitions themselves.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from fleetx.checkpoint.program_desc import AttrType
from fleetx.static.graph.op_registry import OpDef, Slot, get_op, op_types


@dataclass(frozen=True)
class SlotProto:
    """An input or output: whether it takes several variables, and whether it may be left out."""

    name: str
    duplicable: bool
    dispensable: bool
    intermediate: bool = False
    comment: str = ""


@dataclass(frozen=True)
class AttrProto:
    """An attribute and how its value is stored."""

    name: str
    type: AttrType
    generated: bool = False
    comment: str = ""


@dataclass(frozen=True)
class OpProto:
    """The definition of one type of op."""

    type: str
    inputs: tuple[SlotProto, ...]
    outputs: tuple[SlotProto, ...]
    attrs: tuple[AttrProto, ...]
    comment: str = ""


def _slots(slots: tuple[Slot, ...], outputs: bool = False) -> tuple[SlotProto, ...]:
    # XShape only carries a shape to the gradient
    return tuple(
        SlotProto(s.name, s.many, s.optional, intermediate=outputs and s.name == "XShape")
        for s in slots
    )


def _proto(definition: OpDef) -> OpProto:
    return OpProto(
        definition.type,
        _slots(definition.inputs),
        _slots(definition.outputs, outputs=True),
        tuple(AttrProto(name, AttrType[a.kind]) for name, a in definition.attrs.items()),
        (definition.fn.__doc__ or "").strip(),
    )


@functools.cache
def op_proto(type: str) -> OpProto:
    """Return the definition of an op, or raise a ValueError that names similar ones."""
    return _proto(get_op(type))


def all_op_protos() -> list[OpProto]:
    """Return the definitions of all ops."""
    return [op_proto(type) for type in op_types()]
