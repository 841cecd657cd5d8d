"""Specifications of tables: name, shape, type, initial values, optimizer, admission, eviction.

A specification is plain data. `to_dict` and `spec_from_dict` convert it to JSON types and back, for
the handshake between worker and server and for saved tables; both reject invalid values, so a
server never acts on an invalid specification.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from torch import Tensor

from fleetx.kernels.row_initializer import full_settings
from fleetx.kernels.updates import RULES
from fleetx.ps.tables.row_rules import EntrySpec, EvictionSpec
from fleetx.ps.tables.spec_checks import SpecError, is_number, require

DTYPES = ("float32", "float64")
SPARSE_OPTIMIZERS = (
    "sgd", "momentum", "adam", "adamax", "adagrad", "decayed_adagrad", "adadelta", "rmsprop",
    "ftrl", "proximal_gd", "proximal_adagrad",
)  # fmt: skip
# Optimizers that need the norm of a whole parameter.
WHOLE_OPTIMIZERS = ("lars_momentum", "lamb", "dpsgd")
DENSE_OPTIMIZERS = (*SPARSE_OPTIMIZERS, "adamw", *WHOLE_OPTIMIZERS)
TORCH_OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop")
CLIPS = ("value", "norm", "global_norm")

_MOST_DIM = 1 << 16


def _check_settings(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        require(
            isinstance(name, str)
            and (value is None or isinstance(value, bool | str) or is_number(value)),
            f"setting {name}={value!r} of an optimizer is not a number or word.",
        )


@dataclass(frozen=True, kw_only=True)
class InitializerSpec:
    """The initializer of a row or block."""

    kind: str = "zeros"
    """One of `fleetx.kernels.row_initializer.INITIALIZERS`."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """Settings that differ from the defaults listed there."""

    def __post_init__(self) -> None:
        try:
            full_settings(self.kind, self.settings)
        except ValueError as error:
            raise SpecError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class ClipSpec:
    """The clipping of gradients before the update.

    "norm" and "global_norm" apply to the whole gradient of a parameter, or of all: a part of it is
    scaled by the norm that is sent with a push.
    """

    kind: str
    """One of `CLIPS`."""
    limit: float
    """The largest element ("value") or norm."""
    low: float | None = None
    """The smallest element, for "value"; -limit if None."""
    epsilon: float = 0.0
    """Added to the norm, for "global_norm"."""

    def __post_init__(self) -> None:
        require(self.kind in CLIPS, f"clip {self.kind!r} is not known: use {', '.join(CLIPS)}.")
        require(is_number(self.limit), f"the limit of a clip must be a number: {self.limit!r}.")
        require(
            self.kind == "value" or self.limit > 0.0, f"a norm cannot be clipped to {self.limit!r}."
        )
        require(
            self.low is None
            or (self.kind == "value" and is_number(self.low) and self.low <= self.limit),
            f"clip {self.kind!r} to {self.limit!r} cannot have low={self.low!r}.",
        )
        require(
            is_number(self.epsilon) and self.epsilon >= 0.0,
            f"a clip cannot add epsilon={self.epsilon!r} to a norm.",
        )


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """The update rule of a table: one of `fleetx.kernels.updates`, or one of torch's optimizers.

    Dense tables take `DENSE_OPTIMIZERS`, whose settings are those of the rule of that name,
    or "torch.<name>" with a name of `TORCH_OPTIMIZERS` and the arguments of that class. Sparse
    tables take `SPARSE_OPTIMIZERS`; `fleetx.ps.tables.row_optimizers` lists their settings.
    """

    kind: str = "sgd"
    rate: float = 0.01
    """The learning rate of pushes that do not specify one."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    l1: float = 0.0
    """The factor of the penalty l1 * sign(p), added to the clipped gradient."""
    l2: float = 0.0
    """The factor of the penalty l2 * p, added to the clipped gradient."""
    clip: ClipSpec | None = None

    def __post_init__(self) -> None:
        for name in ("rate", "l1", "l2"):
            value = getattr(self, name)
            require(is_number(value), f"{name} of an optimizer must be a number, not {value!r}.")
        _check_settings(self.settings)

    @property
    def needs_whole_parameters(self) -> bool:
        """Whether a parameter must not be sliced, because the update needs its norm."""
        by_norm = self.clip is not None and self.clip.kind == "norm"
        return by_norm or self.kind in WHOLE_OPTIMIZERS

    @property
    def is_random(self) -> bool:
        """Whether an update draws random numbers."""
        return self.kind in RULES and RULES[self.kind].random


@dataclass(frozen=True, kw_only=True)
class BlockSpec:
    """A slice of a parameter in a dense table: whole rows, contiguous in memory."""

    name: str
    parameter: str
    shape: tuple[int, ...]
    start: int = 0
    """The offset of the first element in the flat parameter."""
    rate_scale: float = 1.0
    """A factor for the learning rate."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the optimizer that are specific to this parameter."""
    l1: float | None = None
    l2: float | None = None
    clipped: bool = True
    """Whether the table's clip applies to this parameter."""
    initializer: InitializerSpec = field(default_factory=InitializerSpec)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        for name in (self.name, self.parameter):
            is_word = isinstance(name, str) and bool(name) and _is_text(name)
            require(is_word, f"a block and its parameter must have a name, not {name!r}.")
        require(
            isinstance(self.clipped, bool),
            f"block {self.name!r} cannot have clipped={self.clipped!r}.",
        )
        require(
            all(isinstance(size, int) and size >= 0 for size in self.shape),
            f"block {self.name!r} cannot have shape {self.shape!r}.",
        )
        require(
            isinstance(self.start, int) and self.start >= 0,
            f"block {self.name!r} cannot start at {self.start!r}.",
        )
        for name in ("rate_scale", "l1", "l2"):
            value = getattr(self, name)
            require(
                is_number(value) or (value is None and name != "rate_scale"),
                f"block {self.name!r} cannot have {name}={value!r}.",
            )
        _check_settings(self.settings)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def of(self, parameter: Tensor) -> Tensor:
        """Return this slice of the whole parameter, as a view if its memory permits."""
        return parameter.reshape(-1)[self.start : self.start + self.size].reshape(self.shape)


def name_seed(name: str) -> int:
    """Return a seed that depends only on the name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _is_text(name: str) -> bool:
    """Return whether a name can be part of a path and a log: JSON may hold half a character."""
    return "\0" not in name and not any("\ud800" <= character <= "\udfff" for character in name)


def _check_table(name: Any, dtype: Any) -> None:
    require(isinstance(name, str) and bool(name), f"a table's name must be a word, not {name!r}.")
    require(_is_text(name), f"a table's name must be Unicode text, not {name!r}.")
    require(dtype in DTYPES, f"table {name!r} has type {dtype!r}: use {' or '.join(DTYPES)}.")


@dataclass(frozen=True, kw_only=True)
class DenseTableSpec:
    """Slices of parameters that are pulled and pushed as a whole."""

    name: str
    blocks: tuple[BlockSpec, ...]
    dtype: str = "float32"
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        _check_table(self.name, self.dtype)
        names = [block.name for block in self.blocks]
        require(len(set(names)) == len(names), f"table {self.name!r} has two blocks of one name.")
        kind = self.optimizer.kind
        known = kind in DENSE_OPTIMIZERS or (
            kind.startswith("torch.") and kind.removeprefix("torch.") in TORCH_OPTIMIZERS
        )
        require(
            known,
            f"dense table {self.name!r} has optimizer {kind!r}: use "
            f"{', '.join(DENSE_OPTIMIZERS)}, or torch.{', torch.'.join(TORCH_OPTIMIZERS)}.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as JSON types."""
        return {"kind": "dense", **_plain(self)}


@dataclass(frozen=True, kw_only=True)
class SparseTableSpec:
    """Rows of `dim` numbers by 64-bit ids, created when an id is first used."""

    name: str
    dim: int
    dtype: str = "float32"
    initializer: InitializerSpec = field(default_factory=InitializerSpec)
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    entry: EntrySpec | None = None
    eviction: EvictionSpec | None = None
    seed: int | None = None
    """Determines the initial values, with id and column; None derives it from the name."""

    def __post_init__(self) -> None:
        _check_table(self.name, self.dtype)
        require(
            isinstance(self.dim, int) and 0 < self.dim <= _MOST_DIM,
            f"table {self.name!r} needs a dim from 1 to {_MOST_DIM}, not {self.dim!r}.",
        )
        require(
            self.optimizer.kind in SPARSE_OPTIMIZERS,
            f"sparse table {self.name!r} has optimizer {self.optimizer.kind!r}: use "
            f"{', '.join(SPARSE_OPTIMIZERS)}.",
        )
        require(
            self.seed is None or (isinstance(self.seed, int) and 0 <= self.seed < 1 << 64),
            f"the seed of table {self.name!r} must be from 0 to 2**64 - 1, not {self.seed!r}.",
        )

    @property
    def row_seed(self) -> int:
        """The seed of the initial values."""
        return name_seed(self.name) if self.seed is None else self.seed

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as JSON types."""
        return {"kind": "sparse", **_plain(self)}


TableSpec = DenseTableSpec | SparseTableSpec

# The class of every field that is itself a specification.
_PARTS: dict[str, Any] = {
    "initializer": InitializerSpec,
    "optimizer": OptimizerSpec,
    "clip": ClipSpec,
    "entry": EntrySpec,
    "eviction": EvictionSpec,
}


def _plain(spec: Any) -> dict[str, Any]:
    found = asdict(spec)
    for block in found.get("blocks", ()):
        block["shape"] = list(block["shape"])
    if "blocks" in found:
        found["blocks"] = list(found["blocks"])
    return found


def _build(kind: Any, values: Any) -> Any:
    require(isinstance(values, Mapping), f"{kind.__name__} needs a mapping, not {values!r}.")
    known = {f.name for f in fields(kind)}
    require(
        set(values) <= known, f"{kind.__name__} has no {', '.join(map(str, set(values) - known))}."
    )
    optional = {f.name for f in fields(kind) if f.default is None}
    made = {}
    for name, value in values.items():
        if name == "blocks":
            require(isinstance(value, list | tuple), f"blocks must be a list, not {value!r}.")
            value = tuple(_build(BlockSpec, each) for each in value)
        elif name in _PARTS and (value is not None or name not in optional):
            value = _build(_PARTS[name], value)
        elif name == "settings":
            require(isinstance(value, Mapping), f"settings must be a mapping, not {value!r}.")
        made[name] = value
    try:
        return kind(**made)
    except (TypeError, AttributeError, ArithmeticError) as error:  # missing, or of another type
        raise SpecError(f"{kind.__name__} cannot be made from {values!r}: {error}.") from error


def spec_from_dict(values: Mapping[str, Any]) -> TableSpec:
    """Return the specification written by `to_dict`, validated like a new one."""
    require(
        isinstance(values, Mapping), f"a table's specification must be a mapping, not {values!r}."
    )
    kinds: dict[Any, Any] = {"dense": DenseTableSpec, "sparse": SparseTableSpec}
    kind = values.get("kind")
    require(isinstance(kind, str) and kind in kinds, f"a table is dense or sparse, not {kind!r}.")
    return _build(kinds[kind], {name: v for name, v in values.items() if name != "kind"})
