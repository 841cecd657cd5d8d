"""What travels between workers and servers: a fixed header, a list of tensors, nothing executable.

A message is one or more parts. A part is three frames: the header, the descriptors of the tensors
(in part 0 only), and a piece of the bytes, at most `MAX_PART` of them, with its place in the whole
body given in the header. Everything that arrives is checked here before anything else sees it;
what does not fit raises `WireError` with the reason that goes back to the sender.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch

MAGIC = b"FXPS"
VERSION = 1
MAX_PART = 4 << 20
MAX_BODY = 4 << 30
MAX_TENSORS = 1 << 16
MAX_JSON = 1 << 20
MAX_DIMENSIONS = 8
ALIGNMENT = 64
NO_STEP = -1
# Below this a copy into one buffer is cheaper than a frame of its own.
_PACKED = 1 << 16

_HEADER = struct.Struct("<4sHBBHHIIQQQQqddQQQQII")
_TENSOR = struct.Struct(f"<IBBxx{MAX_DIMENSIONS}Q")
HEADER_SIZE = _HEADER.size

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
    """What a message asks for or answers."""

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
    VOID = 20
    """A sequence number whose request was refused; only in logs."""
    DONE = 30
    ERROR = 31


class Flag(enum.IntFlag):
    """Properties of a message."""

    NONE = 0
    JSON = 1
    """The body is one JSON object, as a tensor of bytes."""
    SYNC = 2
    """A gradient that waits for the same step's gradients of all other workers."""
    SHARED = 4
    """The body lies in the shared memory of this connection, not in the message."""
    CLOCKED = 16
    """A look-up that waits until all workers have come as far as its step."""
    HELD = 8
    """The shared memory of this push stays untouched until its step has been applied."""
    FETCH = 32
    """The answer to this push of dense gradients brings the new values of the same blocks."""


class Problem(enum.IntEnum):
    """Why a request was refused: the code in the header of an ERROR reply."""

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
        Kind.FINISH,
    }
)
"""Kinds that change a server's state: numbered, logged, and applied exactly once."""


class WireError(ValueError):
    """A message is refused; `problem` is the code and the text the reason for the sender."""

    def __init__(self, problem: Problem, reason: str) -> None:
        super().__init__(reason)
        self.problem = problem


@dataclasses.dataclass(slots=True)
class Header:
    """The fixed first frame of every part."""

    kind: Kind
    flags: Flag = Flag.NONE
    problem: int = 0
    """In replies: why the request was refused (`Problem`)."""
    attempt: int = 0
    """How often the request has been sent before; a reply repeats it."""
    table: int = 0
    """Number of the table on this server."""
    worker: int = 0
    incarnation: int = 0
    """Grows whenever the worker's process is started again."""
    epoch: int = 0
    """Grows whenever the server's process is started again."""
    request: int = 0
    """Number a reply repeats."""
    sequence: int = 0
    """Of requests that change state: 1, 2, 3 … per worker and server."""
    step: int = NO_STEP
    rate: float = math.nan
    """Learning rate of a push; not a number: the table's own."""
    norm: float = math.nan
    """Norm of all gradients that a push is a part of, for clipping; not a number: not known."""
    total: int = 0
    """Bytes in the whole body."""
    offset: int = 0
    """Where this part's bytes belong in the body (or the body in shared memory)."""
    reply_offset: int = 0
    """Where in shared memory the reply may be put …"""
    reply_room: int = 0
    """… and how many bytes there are."""
    part: int = 0
    parts: int = 1

    def pack(self) -> bytes:
        """Return the frame."""
        return _HEADER.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.flags,
            self.problem,
            self.attempt,
            self.table,
            self.worker,
            self.incarnation,
            self.epoch,
            self.request,
            self.sequence,
            self.step,
            self.rate,
            self.norm,
            self.total,
            self.offset,
            self.reply_offset,
            self.reply_room,
            self.part,
            self.parts,
        )


def unpack_header(frame: bytes | memoryview) -> Header:
    """Read and check a header."""
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
            f"the sender speaks version {version} of the protocol, this side version {VERSION}: "
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
    """Say whether a frame is long enough and marked as a header, of whatever version."""
    return len(frame) == HEADER_SIZE and bytes(frame[:4]) == MAGIC


def request_of(frame: bytes | memoryview) -> int:
    """Return the number to answer to of a header that may not be readable otherwise."""
    return int(_HEADER.unpack(frame)[10])


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSpec:
    """Key, type, shape and place of one tensor in a body."""

    key: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    size: int


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def place(items: Iterable[tuple[int, torch.dtype, tuple[int, ...]]]) -> list[TensorSpec]:
    """Give every tensor, told by key, type and shape, its place in a body."""
    specs, position = [], 0
    for key, dtype, shape in items:
        size = math.prod(shape) * dtype.itemsize
        specs.append(TensorSpec(key, dtype, shape, position, size))
        position = _aligned(position + size)
    return specs


def lay_out(tensors: Sequence[tuple[int, torch.Tensor]]) -> list[TensorSpec]:
    """Give every (key, tensor) its place in a body."""
    return place((key, tensor.dtype, tuple(tensor.shape)) for key, tensor in tensors)


def body_size(specs: Sequence[TensorSpec]) -> int:
    """Return the bytes of a body with these tensors."""
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
    """Read the descriptors of a body of `total` bytes."""
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
    """Return a tensor as it can be sent: on the CPU, contiguous, of a type with a code."""
    if tensor.dtype not in _CODES:
        raise TypeError(f"Tensors of type {tensor.dtype} cannot be sent to a parameter server.")
    if tensor.dim() > MAX_DIMENSIONS:
        raise ValueError(f"Tensors of {tensor.dim()} dimensions cannot be sent.")
    return tensor.detach().cpu().contiguous()


def pieces(
    tensors: Sequence[tuple[int, torch.Tensor]], specs: Sequence[TensorSpec]
) -> list[tuple[int, memoryview]]:
    """Cut a body into (offset, bytes) of at most MAX_PART: large tensors as views, small packed."""
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
    """Return the (key, tensor) list of a body, as views of `buffer` where alignment allows."""
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
    """Read the body of a message with Flag.JSON."""
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
