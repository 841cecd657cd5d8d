"""Paddle's ProgramDesc protobuf messages, built on first use from a table of fields.

The field numbers are those of Paddle 2.6, a superset of 1.x (whose `op_compatible_map` is kept
too), so files of both parse and serialize again to the same bytes. The messages are in a private
descriptor pool and never collide with those of a real Paddle in the same process.
`message("OpDesc.Attr")` returns a class.
"""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import Any

from fleetx.checkpoint.file_errors import FormatError

PACKAGE = "paddle.framework.proto"


class AttrType(IntEnum):
    """How the value of an operator's attribute is stored."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOLEAN = 6
    BOOLEANS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11
    FLOAT64S = 12
    VAR = 13
    VARS = 14
    FLOAT64 = 15
    SCALAR = 16
    SCALARS = 17


class VarType(IntEnum):
    """`VarType.Type`: element types of tensors and kinds of variables, in one enumeration."""

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21
    BF16 = 22
    COMPLEX64 = 23
    COMPLEX128 = 24
    STRING = 25
    STRINGS = 26

    def __str__(self) -> str:
        return f"VarType.{self.name}"

    __repr__ = __str__
    __hash__ = IntEnum.__hash__


# Kinds of later versions, which files may contain; FleetX's programs do not.
_LATER = {"VOCAB": 27, "FEED_LIST": 28, "PSTRING": 29, "SPARSE_COO": 30, "SPARSE_CSR": 31}
VarKind = IntEnum("VarKind", {**{k.name: k.value for k in VarType}, **_LATER})  # type: ignore[misc]


class ScalarType(IntEnum):
    """`Scalar.Type`: which member of a Scalar holds its value."""

    BOOLEAN = 1
    LONG = 2
    FLOAT64 = 3
    COMPLEX128 = 4


class CompatibleType(IntEnum):
    """`CompatibleInfo.Type` of Paddle 1.x."""

    COMPATIBLE = 0
    DEFINITELY_NOT = 1
    POSSIBLE = 2
    BUG_FIX = 3
    PRECISION_CHANGE = 4


_ENUMS: dict[str, type[IntEnum]] = {
    "AttrType": AttrType,
    "VarType.Type": VarKind,
    "Scalar.Type": ScalarType,
    "CompatibleInfo.Type": CompatibleType,
}

# One line per message: `number label type name [default]`, label ! required, ? optional, *
# repeated.
_MESSAGES: dict[str, str] = {
    "Version": "1 ? int64 version 0",
    "Complex": "1 ! double r, 2 ! double i",
    "Scalar": "1 ! Scalar.Type type, 2 ? bool b, 3 ? int64 i, 4 ? double r, 5 ? Complex c",
    "OpDesc": "1 * OpDesc.Var inputs, 2 * OpDesc.Var outputs, 3 ! string type, "
    "4 * OpDesc.Attr attrs, 5 ? bool is_target false",
    "OpDesc.Attr": "1 ! string name, 2 ! AttrType type, 3 ? int32 i, 4 ? float f, 5 ? string s, "
    "6 * int32 ints, 7 * float floats, 8 * string strings, 10 ? bool b, 11 * bool bools, "
    "12 ? int32 block_idx, 13 ? int64 l, 14 * int32 blocks_idx, 15 * int64 longs, "
    "16 * double float64s, 17 ? string var_name, 18 * string vars_name, 19 ? double float64, "
    "20 ? Scalar scalar, 21 * Scalar scalars",
    "OpDesc.Var": "1 ! string parameter, 2 * string arguments",
    "OpProto": "1 ! string type, 2 * OpProto.Var inputs, 3 * OpProto.Var outputs, "
    "4 * OpProto.Attr attrs, 5 ! string comment",
    "OpProto.Var": "1 ! string name, 2 ! string comment, 3 ? bool duplicable false, "
    "4 ? bool intermediate false, 5 ? bool dispensable false",
    "OpProto.Attr": "1 ! string name, 2 ! AttrType type, 3 ! string comment, "
    "4 ? bool generated false",
    "VarType": "1 ! VarType.Type type, 2 ? VarType.TensorDesc selected_rows, "
    "3 ? VarType.LoDTensorDesc lod_tensor, 4 ? VarType.LoDTensorArrayDesc tensor_array, "
    "5 ? VarType.ReaderDesc reader, 7 ? VarType.Tuple tuple, 8 ? VarType.TensorDesc string, "
    "9 ? VarType.TensorDesc strings, 10 ? VarType.TensorDesc vocab, "
    "11 ? VarType.TensorDesc sparse_coo, 12 ? VarType.TensorDesc sparse_csr",
    "VarType.TensorDesc": "1 ! VarType.Type data_type, 2 * int64 dims",
    "VarType.LoDTensorDesc": "1 ! VarType.TensorDesc tensor, 2 ? int32 lod_level 0",
    "VarType.LoDTensorArrayDesc": "1 ! VarType.TensorDesc tensor, 2 ? int32 lod_level 0",
    "VarType.ReaderDesc": "1 * VarType.LoDTensorDesc lod_tensor",
    "VarType.Tuple": "1 * VarType.Type element_type",
    "VarDesc": "1 ! string name, 2 ! VarType type, 3 ? bool persistable false, "
    "4 ? bool need_check_feed false, 5 ? bool is_parameter false, 6 ? bool stop_gradient false, "
    "7 * VarDesc.Attr attrs",
    "VarDesc.Attr": "1 ! string name, 2 ! AttrType type, 3 ? int32 i, 4 ? string s, 5 * int32 ints",
    "BlockDesc": "1 ! int32 idx, 2 ! int32 parent_idx, 3 * VarDesc vars, 4 * OpDesc ops, "
    "5 ? int32 forward_block_idx -1",
    "CompatibleInfo": "1 ! string version, 2 ! CompatibleInfo.Type type",
    "OpCompatibleMap": "1 * OpCompatibleMap.OpCompatiblePair pair, "
    "2 ? string default_required_version",
    "OpCompatibleMap.OpCompatiblePair": "1 ! string op_name, 2 ! CompatibleInfo compatible_info",
    "OpVersion": "1 ! int32 version",
    "OpVersionMap": "1 * OpVersionMap.OpVersionPair pair",
    "OpVersionMap.OpVersionPair": "1 ! string op_name, 2 ! OpVersion op_version",
    "ProgramDesc": "1 * BlockDesc blocks, 3 ? OpCompatibleMap op_compatible_map, "
    "4 ? Version version, 5 ? OpVersionMap op_version_map",
}

_LABELS = {"?": 1, "!": 2, "*": 3}


def _add_enum(holder: Any, name: str, members: type[IntEnum]) -> None:
    enum = holder.enum_type.add(name=name)
    for member in members:
        enum.value.add(name=member.name, number=member.value)


def _add_field(descriptor: Any, specification: str) -> None:
    number, label, type_name, name, *default = specification.split()
    field = descriptor.field.add(name=name, number=int(number), label=_LABELS[label])
    if type_name in _ENUMS or type_name in _MESSAGES:
        field.type = field.TYPE_ENUM if type_name in _ENUMS else field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{type_name}"
    else:
        field.type = getattr(field, f"TYPE_{type_name.upper()}")
    if default:
        field.default_value = default[0]


@functools.cache
def _pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(
        name="fleetx/framework.proto", package=PACKAGE, syntax="proto2"
    )
    # An outer message is always listed before those nested in it.
    holders: dict[str, Any] = {}
    for full_name, fields in _MESSAGES.items():
        outer, _, name = full_name.rpartition(".")
        holders[full_name] = (
            holders[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        )
        for specification in fields.split(", "):
            _add_field(holders[full_name], specification)
    for full_name, members in _ENUMS.items():
        outer, _, name = full_name.rpartition(".")
        _add_enum(holders[outer] if outer else file, name, members)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


@functools.cache
def message(name: str) -> Any:
    """Return the protobuf class of a message by its name, e.g. ``VarType.Tuple``."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def parse(name: str, data: bytes | memoryview, *, source: str) -> Any:
    """Parse ``data`` as one message, or raise a :class:`FormatError` for ``source``."""
    from google.protobuf.message import DecodeError

    result = message(name)()
    try:
        result.ParseFromString(bytes(data))
    except DecodeError as error:
        raise FormatError(source, f"is cut short or is not a {name} protobuf ({error}).") from error
    if not result.IsInitialized():
        missing = ", ".join(result.FindInitializationErrors()[:3])
        raise FormatError(source, f"is not a complete {name} protobuf: it lacks {missing}.")
    return result


def parse_program(data: bytes, *, source: str) -> Any:
    """Parse and validate a whole ProgramDesc (`__model__`, `.pdmodel`).

    Protobuf accepts many foreign byte strings as messages full of unknown fields, so the structure
    is checked too: blocks exist, are numbered in order, and each has a parent before it.
    """
    program = parse("ProgramDesc", data, source=source)
    if not program.blocks:
        raise FormatError(source, "has no block, so it is not a saved program.")
    for position, block in enumerate(program.blocks):
        if block.idx != position:
            problem = f"block number {position} has the index {block.idx}."
            raise FormatError(source, problem)
        if not -1 <= block.parent_idx < position:
            problem = f"block {position} names block {block.parent_idx} as its parent."
            raise FormatError(source, problem)
    return program
