"""One definition per op: its slots, its attributes, and the torch function that computes it.

An op is registered by decorating the function::

    @op("mul", inputs="X Y", outputs="Out")
    def mul(x: Tensor, y: Tensor, *, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Tensor:
        ...

Slots are written in the order of the function's arguments. `X*` takes a list of variables, `X?` may
be absent (the function gets None, or an empty list for `X*?`), `X!` never gets a gradient (a label,
an index). An output `Y=X` is written into the tensors of input X. The function returns one value
per output slot (a tuple if there are several; a list for a `*` slot; None for an output that it
does not compute). The keywords of its signature are attributes, with their defaults; `attrs` has
those that the function does not take, such as `use_cudnn`, which are only kept in the program (one
that takes `**settings` gets them too). Two more keywords are possible: `ctx`, the `OpContext` of
the run, and `lod`, the offsets of variable-length inputs by slot. Shapes are inferred by running
the function on meta tensors, and gradients are computed by torch's autograd, unless `infer` or
`grad` is given.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

# The annotation of an attribute that files store with 64 bits: `index: Long`, `shape: list[Long]`.
Long = int
GRAD_SUFFIX = "@GRAD"
EMPTY_NAME = "@EMPTY@"
# An input slot that any op may have: a boolean variable; if it is true, the op is skipped.
SKIP_UPDATE = "SkipUpdate"
# Gradient ops that are not called <op>_grad in Paddle.
_GRAD_TYPES = {"cross_entropy2": "cross_entropy_grad2"}
_FORWARD_TYPES = {grad: forward for forward, grad in _GRAD_TYPES.items()}


@dataclass(frozen=True)
class Slot:
    """A named input or output of an op."""

    name: str
    many: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Attr:
    """An attribute whose kind does not follow from its default: `Attr("LONGS", [])`."""

    kind: str
    default: Any


@dataclass
class OpDef:
    """The definition of an op type."""

    type: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attrs: dict[str, Attr]
    fn: Callable[..., Any]
    # None: run `fn` on meta tensors. Otherwise `infer(op, block)` sets shapes and types itself.
    infer: Callable[[Any, Any], None] | None = None
    # "auto": by autograd through `fn`. None: gradients stop here.
    grad: str | None = "auto"
    # Input slots that never get a gradient.
    no_grad_slots: frozenset[str] = frozenset()
    # Output slots that `fn` writes into the tensors of input slots: {output: input}.
    inplace: dict[str, str] = field(default_factory=dict)
    # Runs several ops of this type with equal attributes: fused(list of argument tuples, **attrs)
    # returns the list of the results of `fn`.
    fused: Callable[..., list[Any]] | None = None
    # Whether an op may be fused.
    fused_if: Callable[[Any], bool] | None = None
    # Computes `fn` up to rounding and without gradients, but faster on tiny values: for an op that
    # runs alone.
    alone: Callable[..., Any] | None = None
    # The op has side effects (it prints, reads, communicates), so it is never removed as dead.
    side_effect: bool = False
    # The result differs from call to call, so a gradient must not run `fn` again.
    random: bool = False
    # "share": outputs take the offsets (LoD) of the first input that has them. "none": outputs have
    # none. A function computes those of the outputs from the op and the known ones by variable.
    lod: str | Callable[[Any, dict[str, Any]], Any] = "share"
    # Attributes that are only decided at run time by `ctx` must not be bound early.
    names: frozenset[str] = frozenset()

    @property
    def needs_ctx(self) -> bool:
        """Whether the function takes the run's context."""
        return "ctx" in self.names

    @property
    def needs_lod(self) -> bool:
        """Whether the function takes offsets of variable-length inputs."""
        return "lod" in self.names

    def bind(self, attrs: dict[str, Any], *, alone: bool = False) -> Callable[..., Any]:
        """Return the function with the attributes of one op filled in."""
        used = {k: v for k, v in attrs.items() if k in self.names}
        fn = self.alone if alone and self.alone is not None else self.fn
        return functools.partial(fn, **used) if used else fn


_REGISTRY: dict[str, OpDef] = {}
# Derived definitions of gradient ops, created on first use.
_GRADIENTS: dict[str, OpDef] = {}


def _parse_slots(text: str) -> tuple[Slot, ...]:
    slots = []
    for word in text.split():
        word = word.partition("=")[0]
        name = word.rstrip("*?!")
        marks = word[len(name) :]
        slots.append(Slot(name, many="*" in marks, optional="?" in marks))
    return tuple(slots)


def attr_kind(value: Any) -> str:
    """Return the protobuf kind ('INT', 'FLOATS', ...) that fits a Python value."""
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "INT" if -(2**31) <= value < 2**31 else "LONG"
    if isinstance(value, float):
        return "FLOAT"
    if isinstance(value, str):
        return "STRING"
    if isinstance(value, list | tuple):
        kinds = {attr_kind(v) for v in value}
        if not kinds or kinds == {"INT"}:
            return "INTS"
        if kinds <= {"INT", "LONG"}:
            return "LONGS"
        if kinds <= {"INT", "LONG", "FLOAT"}:
            return "FLOATS"
        return {"BOOLEAN": "BOOLEANS", "STRING": "STRINGS"}.get(kinds.pop(), "INTS")
    return "BLOCK" if hasattr(value, "idx") else "INT"


_KINDS = {"Long": "LONG", "list[Long]": "LONGS", "list[float]": "FLOATS", "list[str]": "STRINGS"}


@dataclass(frozen=True)
class _Keywords:
    """The keyword-only parameters of a function."""

    names: frozenset[str]
    defaults: dict[str, Any]
    annotations: dict[str, Any]
    takes_others: bool
    """The function has `**settings`."""


def _keywords_of(fn: Any) -> _Keywords:
    if not isinstance(fn, FunctionType) or vars(fn):  # wrapped, or with a signature of its own
        found = inspect.signature(fn).parameters.values() if callable(fn) else ()
        keywords = [p for p in found if p.kind == p.KEYWORD_ONLY]
        return _Keywords(
            frozenset(p.name for p in keywords),
            {p.name: p.default for p in keywords if p.default is not p.empty},
            {p.name: p.annotation for p in keywords},
            any(p.kind == p.VAR_KEYWORD for p in found),
        )
    # inspect.signature would take a tenth of the time of `import fleetx.static`.
    code = fn.__code__
    last = code.co_argcount + code.co_kwonlyargcount
    return _Keywords(
        frozenset(code.co_varnames[code.co_argcount : last]),
        fn.__kwdefaults__ or {},
        fn.__annotations__,
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
    )


def _attributes(keywords: _Keywords | None, more: dict[str, Any] | None) -> dict[str, Attr]:
    """Return the attributes that keywords declare by their defaults, and `more` ones.

    A default of None declares nothing: an op may have that attribute or lack it.
    """
    declared = {}
    if keywords is not None:
        for name, default in keywords.defaults.items():
            if default is not None:
                kind = _KINDS.get(keywords.annotations.get(name, ""))
                declared[name] = Attr(kind or attr_kind(default), default)
    for name, value in (more or {}).items():
        declared[name] = value if isinstance(value, Attr) else Attr(attr_kind(value), value)
    return declared


def op(
    type: str,
    *,
    inputs: str = "X",
    outputs: str = "Out",
    attrs: dict[str, Any] | None = None,
    attrs_only: bool = False,
    **options: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the op `type`; see the module's docstring.

    With `attrs_only`, keywords that are not in `attrs` are not attributes.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        keywords = _keywords_of(fn)
        parsed = _attributes(None if attrs_only else keywords, attrs)
        if type in _REGISTRY:
            raise ValueError(
                f"op {type!r} is registered twice: see {_REGISTRY[type].fn.__module__}."
            )
        _REGISTRY[type] = OpDef(
            type,
            _parse_slots(inputs),
            _parse_slots(outputs),
            parsed,
            fn,
            no_grad_slots=frozenset(w.rstrip("*?!") for w in inputs.split() if "!" in w),
            inplace=dict(re.findall(r"(\w+)[*?]*=(\w+)", outputs)),
            names=keywords.names | (parsed.keys() if keywords.takes_others else frozenset()),
            **options,
        )
        return fn

    return register


def no_infer(op: Any, block: Any) -> None:
    """Leave the outputs as they were declared."""


def effect_op(type: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an op that is run for its effect: without gradient, by default without inference."""
    return op(type, **{"infer": no_infer, "grad": None, "side_effect": True, **options})


def detached_op(type: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an op whose outputs take neither a gradient nor offsets (LoD) from its inputs."""
    return op(type, **{"grad": None, "lod": "none", **options})


def grad_type_of(type: str) -> str:
    """Return the type of the gradient op of an op."""
    return _GRAD_TYPES.get(type) or type + "_grad"


def forward_type_of(type: str) -> str | None:
    """Return the type of the op whose gradient op has this type, or None."""
    if type in _FORWARD_TYPES:
        return _FORWARD_TYPES[type]
    return type.removesuffix("_grad") if type.endswith("_grad") else None


def has_op(type: str) -> bool:
    """Return whether an op of this type is registered."""
    return find_op(type) is not None


def find_op(type: str) -> OpDef | None:
    """Return the definition of an op, of its gradient for `<op>_grad`, or None."""
    found = _REGISTRY.get(type) or _GRADIENTS.get(type)
    forward_type = None if found is not None else forward_type_of(type)
    if forward_type is not None:
        forward = find_op(forward_type)
        if forward is not None and forward.grad is not None:
            from fleetx.static.autodiff.grad_op import make_grad_def

            found = _GRADIENTS[type] = make_grad_def(forward)
    return found


def get_op(type: str) -> OpDef:
    """Return the definition of an op, or raise a ValueError that names similar ones."""
    found = find_op(type)
    if found is None:
        near = difflib.get_close_matches(type, _REGISTRY, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f'Operator "{type}" has not been registered.{hint}')
    return found


def op_types() -> list[str]:
    """Return all registered op types, sorted, without derived gradient ops."""
    return sorted(_REGISTRY)
