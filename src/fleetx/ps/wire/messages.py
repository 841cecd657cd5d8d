"""The messages between workers and servers: a fixed header and a list of tensors, no code.

A message is one or more parts. A part is three frames: the header, the descriptors of the tensors
(in part 0 only), and at most `MAX_PART` bytes of the body, whose position is given in the header.
Everything received is validated here before other code sees it; an invalid message raises
`WireError` with the reason that is returned to the sender.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import operator
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch

MAGIC = b"FXPS"
VERSION = 1
MAX_PART = 1 << 20
MAX_BODY = 4 << 30
MAX_JSON = 1 << 20
MAX_DIMENSIONS = 8
ALIGNMENT = 64
NO_STEP = -1
# Below this size, a copy into one buffer is cheaper than a separate frame.
_PACKED = 1 << 16

_HEADER = struct.Struct("<4sHBBHHIIQQQQqddQQQQII")
_TENSOR = struct.Struct(f"<IBBxx{MAX_DIMENSIONS}Q")
HEADER_SIZE = _HEADER.size
MAX_TENSORS = 1 << 14
MAX_FRAME = max(MAX_PART, MAX_TENSORS * _TENSOR.size)
"""The largest frame of a valid message: a part of a body, or the descriptors of all tensors."""

_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
)
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


class Kind(enum.IntEnum):
    """The request or reply that a message is."""

    HELLO = 1
    WELCOME = 2
    HEARTBEAT = 3
    PULSE = 4
    CREATE = 5
    SET = 6
    PUSH = 7
    ADD = 8
    PULL = 9
    CHANGED = 10
    COMMIT = 11
    ARRIVE = 12
    WAIT = 13
    CLOCK = 14
    SAVE = 15
    LOAD = 16
    FINISH = 17
    STOP = 18
    STATUS = 19
    NORM = 21
    MOVE = 22
    HAND_OVER = 23
    READ = 24  # by whoever may only read
    VOID = 20
    """A sequence number whose request was rejected; only in logs."""
    DONE = 30
    ERROR = 31


class Flag(enum.IntFlag):
    """Properties of a message."""

    NONE = 0
    JSON = 1
    """The body is one JSON object, as a tensor of bytes."""
    SYNC = 2
    """A gradient that waits for all other workers' gradients of the same step."""
    SHARED = 4
    """The body is in the shared memory of this connection, not in the message."""
    CLOCKED = 16
    """A look-up that waits until all workers have reached its step."""
    HELD = 8
    """The shared memory of this push is not reused until its step has been applied."""
    FETCH = 32
    """The reply to this push of dense gradients contains the new values of the same blocks."""
    MOVING = 64
    """In replies: the tables move to other servers."""


class Problem(enum.IntEnum):
    """The reason for a rejection: the code in the header of an ERROR reply."""

    NONE = 0
    MALFORMED = 1
    VERSION = 2
    TOO_LARGE = 3
    UNKNOWN_TABLE = 4
    WRONG_SHAPE = 5
    BAD_REQUEST = 6
    OLD_INCARNATION = 7
    NEED_HELLO = 8
    OUT_OF_ORDER = 9
    STORAGE = 10
    FAILED = 11
    INTERNAL = 12


SEQUENCED = frozenset(
    {
        Kind.CREATE,
        Kind.SET,
        Kind.PUSH,
        Kind.ADD,
        Kind.COMMIT,
        Kind.NORM,
        Kind.ARRIVE,
        Kind.LOAD,
        Kind.MOVE,
        Kind.FINISH,
    }
)
"""Kinds that change a server's state: numbered, logged, and applied exactly once."""


class WireError(ValueError):
    """An error for a rejected message; `problem` is the code and the text the reason."""

    def __init__(self, problem: Problem, reason: str) -> None:
        super().__init__(reason)
        self.problem = problem


@dataclasses.dataclass(slots=True)
class Header:
    """The fixed first frame of every part."""

    kind: Kind
    flags: Flag = Flag.NONE
    problem: int = 0
    """In replies: the reason for a rejection (`Problem`)."""
    attempt: int = 0
    """The number of earlier attempts of the request; repeated in the reply."""
    table: int = 0
    """The number of the table on this server."""
    worker: int = 0
    incarnation: int = 0
    """Increases with every start of the worker's process."""
    epoch: int = 0
    """Increases with every start of the server's process."""
    request: int = 0
    """The number of the request, repeated in the reply."""
    sequence: int = 0
    """For requests that change state: 1, 2, 3 … per worker and server."""
    step: int = NO_STEP
    rate: float = math.nan
    """The learning rate of a push; NaN for the table's own."""
    norm: float = math.nan
    """The norm of all gradients that a push is part of, for clipping; NaN if unknown."""
    total: int = 0
    """The size of the whole body in bytes."""
    offset: int = 0
    """The offset of this part's bytes in the body (or of the body in shared memory)."""
    reply_offset: int = 0
    """The offset in shared memory for the reply …"""
    reply_room: int = 0
    """… and its size in bytes."""
    part: int = 0
    parts: int = 1

    def pack(self) -> bytes:
        """Return the header as a frame."""
        return _HEADER.pack(MAGIC, VERSION, *_fields_of(self))


# Its fields stand in the frame in the order of the class.
_fields_of = operator.attrgetter(*(field.name for field in dataclasses.fields(Header)))


def unpack_header(frame: bytes | memoryview) -> Header:
    """Parse and validate a header."""
    if len(frame) != HEADER_SIZE:
        raise WireError(
            Problem.MALFORMED, f"the header has {len(frame)} bytes instead of {HEADER_SIZE}"
        )
    magic, version, kind, flags, *rest = _HEADER.unpack(frame)
    if magic != MAGIC:
        raise WireError(Problem.MALFORMED, "the header does not begin with the protocol's mark")
    if version != VERSION:
        raise WireError(
            Problem.VERSION,
            f"the sender uses protocol version {version}, this side version {VERSION}: "
            "install the same FleetX on all machines",
        )
    try:
        header = Header(Kind(kind), Flag(flags), *rest)
    except ValueError as error:
        raise WireError(Problem.MALFORMED, f"unknown kind or flag of message ({error})") from error
    if header.total > MAX_BODY:
        raise WireError(
            Problem.TOO_LARGE,
            f"the body has {header.total} bytes and at most {MAX_BODY} are allowed",
        )
    if header.part >= header.parts or header.parts > 1 + MAX_TENSORS + header.total // _PACKED:
        raise WireError(Problem.MALFORMED, f"part {header.part} of {header.parts}")
    return header


def is_header(frame: bytes | memoryview) -> bool:
    """Return whether a frame is long enough and marked as a header, of any version."""
    return len(frame) == HEADER_SIZE and bytes(frame[:4]) == MAGIC


def request_of(frame: bytes | memoryview) -> int:
    """Return the request number of a header that may be unreadable otherwise."""
    return int(_HEADER.unpack(frame)[10])


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSpec:
    """The key, type, shape and position of a tensor in a body."""

    key: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    size: int


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def place(items: Iterable[tuple[int, torch.dtype, tuple[int, ...]]]) -> list[TensorSpec]:
    """Assign each tensor, given by key, type and shape, its position in a body."""
    specs, position = [], 0
    for key, dtype, shape in items:
        size = math.prod(shape) * dtype.itemsize
        specs.append(TensorSpec(key, dtype, shape, position, size))
        position = _aligned(position + size)
    return specs


def lay_out(tensors: Sequence[tuple[int, torch.Tensor]]) -> list[TensorSpec]:
    """Assign each (key, tensor) its position in a body."""
    return place((key, tensor.dtype, tuple(tensor.shape)) for key, tensor in tensors)


def body_size(specs: Sequence[TensorSpec]) -> int:
    """Return the size in bytes of a body with these tensors."""
    return specs[-1].offset + specs[-1].size if specs else 0


def pack_specs(specs: Sequence[TensorSpec]) -> bytes:
    """Return the frame of descriptors."""
    frame = bytearray(_TENSOR.size * len(specs))
    for index, spec in enumerate(specs):
        padded = spec.shape + (0,) * (MAX_DIMENSIONS - len(spec.shape))
        _TENSOR.pack_into(
            frame, index * _TENSOR.size, spec.key, _CODES[spec.dtype], len(spec.shape), *padded
        )
    return bytes(frame)


def unpack_specs(frame: bytes | memoryview, total: int) -> list[TensorSpec]:
    """Parse the descriptors of a body of `total` bytes."""
    count, rest = divmod(len(frame), _TENSOR.size)
    if rest or count > MAX_TENSORS:
        raise WireError(Problem.MALFORMED, f"the descriptors have {len(frame)} bytes")
    items = []
    for key, code, dimensions, *shape in _TENSOR.iter_unpack(frame):
        if code >= len(_DTYPES) or dimensions > MAX_DIMENSIONS:
            raise WireError(Problem.MALFORMED, "a tensor of unknown type or too many dimensions")
        shape = shape[:dimensions]
        if math.prod(size for size in shape if size) > MAX_BODY:
            raise WireError(Problem.TOO_LARGE, f"a tensor of shape {shape}")
        items.append((key, _DTYPES[code], tuple(shape)))
    specs = place(items)
    if body_size(specs) != total:
        raise WireError(
            Problem.MALFORMED,
            f"the tensors need {body_size(specs)} bytes and the header says {total}",
        )
    return specs


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """Return a view of a contiguous CPU tensor's memory."""
    flat = tensor.detach().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def prepare(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in a form that can be sent: on the CPU, contiguous, of a supported type."""
    if tensor.dtype not in _CODES:
        raise TypeError(f"Tensors of type {tensor.dtype} cannot be sent to a parameter server.")
    if tensor.dim() > MAX_DIMENSIONS:
        raise ValueError(f"Tensors of {tensor.dim()} dimensions cannot be sent.")
    return tensor.detach().cpu().contiguous()


def pieces(
    tensors: Sequence[tuple[int, torch.Tensor]], specs: Sequence[TensorSpec]
) -> list[tuple[int, memoryview]]:
    """Split a body into (offset, bytes) up to MAX_PART: large tensors as views, small packed."""
    result: list[tuple[int, memoryview]] = []
    packed: list[tuple[TensorSpec, torch.Tensor]] = []

    def flush() -> None:
        if packed:
            start = packed[0][0].offset
            last = packed[-1][0]
            buffer = bytearray(last.offset + last.size - start)
            for spec, tensor in packed:
                at = spec.offset - start
                buffer[at : at + spec.size] = as_bytes(tensor)
            result.append((start, memoryview(buffer)))
            packed.clear()

    for spec, (_, tensor) in zip(specs, tensors, strict=True):
        if spec.size < _PACKED:
            if packed and spec.offset + spec.size - packed[0][0].offset > MAX_PART:
                flush()
            packed.append((spec, tensor))
            continue
        flush()
        view = as_bytes(tensor)
        for start in range(0, spec.size, MAX_PART):
            result.append((spec.offset + start, view[start : start + MAX_PART]))
    flush()
    return result or [(0, memoryview(b""))]


def read_tensors(specs: Sequence[TensorSpec], buffer: memoryview) -> list[tuple[int, torch.Tensor]]:
    """Return the (key, tensor) list of a body, as views of `buffer` if alignment permits."""
    return [(spec.key, _view(spec, buffer)) for spec in specs]


def _view(spec: TensorSpec, buffer: memoryview) -> torch.Tensor:
    if not spec.size:
        return torch.empty(spec.shape, dtype=spec.dtype)
    item = spec.dtype.itemsize
    flat = torch.frombuffer(buffer, dtype=spec.dtype, count=spec.size // item, offset=spec.offset)
    if flat.data_ptr() % item:
        flat = flat.clone()
    return flat if len(spec.shape) == 1 else flat.view(spec.shape)


def json_body(value: dict[str, Any]) -> list[tuple[int, torch.Tensor]]:
    """Return a JSON object as the body of a message with Flag.JSON."""
    text = json.dumps(value).encode()
    if len(text) > MAX_JSON:
        raise ValueError(f"A message of {len(text)} bytes of JSON; at most {MAX_JSON} are allowed.")
    return [(0, torch.frombuffer(bytearray(text), dtype=torch.uint8))]


def read_json(tensors: Sequence[tuple[int, torch.Tensor]]) -> dict[str, Any]:
    """Parse the body of a message with Flag.JSON."""
    if len(tensors) != 1 or tensors[0][1].dtype != torch.uint8 or tensors[0][1].dim() != 1:
        raise WireError(Problem.MALFORMED, "the body is not one JSON object")
    if tensors[0][1].numel() > MAX_JSON:
        raise WireError(Problem.TOO_LARGE, f"JSON of {tensors[0][1].numel()} bytes")
    try:
        value = json.loads(bytes(as_bytes(tensors[0][1])))
    except (ValueError, RecursionError) as error:
        raise WireError(Problem.MALFORMED, f"the body is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise WireError(Problem.MALFORMED, "the body is not a JSON object")
    return value
