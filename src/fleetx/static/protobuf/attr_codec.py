"""Attributes of ops in Paddle's protobuf: the stored kind of a value, and the value.

An attribute that was read from a file keeps its kind (`Operator._attr_kinds`), because Paddle's
releases differ in a few. Otherwise the kind comes from the op registry, or from the value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetx.checkpoint.program_desc import AttrType, ScalarType, message
from fleetx.static.graph.op_registry import attr_kind, find_op
from fleetx.static.graph.operator import Operator

# Attributes that every op may have.
_COMMON = {
    "op_role": AttrType.INT,
    "op_role_var": AttrType.STRINGS,
    "op_namescope": AttrType.STRING,
    "op_callstack": AttrType.STRINGS,
    "op_device": AttrType.STRING,
    "with_quant_attr": AttrType.BOOLEAN,
}

_FIELDS = {
    AttrType.INT: "i",
    AttrType.FLOAT: "f",
    AttrType.STRING: "s",
    AttrType.INTS: "ints",
    AttrType.FLOATS: "floats",
    AttrType.STRINGS: "strings",
    AttrType.BOOLEAN: "b",
    AttrType.BOOLEANS: "bools",
    AttrType.BLOCK: "block_idx",
    AttrType.LONG: "l",
    AttrType.BLOCKS: "blocks_idx",
    AttrType.LONGS: "longs",
    AttrType.FLOAT64S: "float64s",
    AttrType.VAR: "var_name",
    AttrType.VARS: "vars_name",
    AttrType.FLOAT64: "float64",
    AttrType.SCALAR: "scalar",
    AttrType.SCALARS: "scalars",
}

# The kind of a list -> the kind of its elements: INTS -> INT.
_ELEMENTS = {kind: AttrType[kind.name[:-1]] for kind in AttrType if kind.name.endswith("S")}


def kind_for(op: Operator, name: str, value: Any) -> AttrType:
    """Return the kind under which an op's attribute is stored."""
    if name in _COMMON:
        return _COMMON[name]
    known = op._attr_kinds.get(name)
    if known is None:
        definition = find_op(op.type)
        declared = definition.attrs.get(name) if definition is not None else None
        known = declared.kind if declared is not None else attr_kind(_plain(value))
    return AttrType[known]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _scalar(value: Any) -> Any:
    scalar = message("Scalar")
    if isinstance(value, bool):
        return scalar(type=ScalarType.BOOLEAN, b=value)
    if isinstance(value, complex):
        return scalar(type=ScalarType.COMPLEX128, c={"r": value.real, "i": value.imag})
    if isinstance(value, float):
        return scalar(type=ScalarType.FLOAT64, r=value)
    return scalar(type=ScalarType.LONG, i=operator.index(value))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value
    name = getattr(value, "name", None)
    if not isinstance(name, str):
        raise TypeError("text was expected")
    return name


def _integer(value: Any) -> int:
    return int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)


_ENCODERS: dict[AttrType, Callable[[Any], Any]] = {
    AttrType.INT: _integer,
    AttrType.LONG: _integer,
    AttrType.FLOAT: float,
    AttrType.FLOAT64: float,
    AttrType.STRING: _text,
    AttrType.VAR: _text,
    AttrType.BOOLEAN: bool,
    AttrType.BLOCK: lambda block: block.idx,
    AttrType.SCALAR: _scalar,
}


def encode_attr(attr: Any, kind: AttrType, value: Any) -> None:
    """Store a value in an `OpDesc.Attr` message; a value that does not fit its kind is an error."""
    value = _plain(value)
    attr.type = kind
    element = _ELEMENTS.get(kind)
    if element is not None:
        items = value if isinstance(value, list | tuple | range) else [value]
        encoder = _ENCODERS[element]
        getattr(attr, _FIELDS[kind]).extend(encoder(_plain(item)) for item in items)
        return
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    encoded = _ENCODERS[kind](value)
    if kind is AttrType.SCALAR:
        attr.scalar.CopyFrom(encoded)
    else:
        setattr(attr, _FIELDS[kind], encoded)


def _short(value: float) -> float:
    # 0.9 is stored as a 32-bit float; the shortest decimal that rounds to it is 0.9 again.
    return float(str(np.float32(value)))


def _scalar_value(scalar: Any) -> Any:
    if scalar.type == ScalarType.COMPLEX128:
        return complex(scalar.c.r, scalar.c.i)
    field = {ScalarType.BOOLEAN: "b", ScalarType.LONG: "i", ScalarType.FLOAT64: "r"}
    return getattr(scalar, field[ScalarType(scalar.type)])


def fit_declared(op_type: str, name: str, value: Any) -> Any:
    """Return a value as the op expects it, if a release of Paddle stores it differently.

    Tolerances of `isclose` are text in Paddle 2.x, the decay of `lars_momentum` a list.
    """
    definition = find_op(op_type)
    declared = definition.attrs.get(name) if definition is not None else None
    if declared is None or declared.kind != "FLOAT":
        return value
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return float(value) if isinstance(value, str) else value


def decode_attr(attr: Any) -> Any:
    """Return the value in an `OpDesc.Attr` message; blocks are returned as indices."""
    kind = AttrType(attr.type)
    value = getattr(attr, _FIELDS[kind])
    if kind in _ELEMENTS:
        items = list(value)
        if kind is AttrType.FLOATS:
            return [_short(item) for item in items]
        return [_scalar_value(item) for item in items] if kind is AttrType.SCALARS else items
    if kind is AttrType.FLOAT:
        return _short(value)
    return _scalar_value(value) if kind is AttrType.SCALAR else value
