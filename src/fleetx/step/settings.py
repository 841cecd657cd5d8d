"""Settings: name, type, default, meaning and the check of a value, declared once.

A technique declares its settings as a frozen dataclass, `Config`, with `setting(...)` where a field
has a range or a number in Paddle's protobuf. `rows_of` turns the dataclass into `Field`s, from
which follow the `*_configs` of a DistributedStrategy, their checks, the page of settings and the
protobuf; `read` turns checked values back into the dataclass.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import difflib
import inspect
import numbers
import textwrap
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, cast, overload

import numpy as np

T = TypeVar("T")
C = TypeVar("C")
_ROW = "fleetx setting"  # the key in a dataclass field's metadata
_FIRST_OWN_NUMBER = 1001
"""Settings that Paddle does not have are numbered from here on in the protobuf."""


class Holder(Protocol):
    """What a `Field` is an attribute of: a DistributedStrategy."""

    _values: dict[str, Any]

    def _assign(self, field: Field[Any], value: Any) -> None: ...


class Effect(Enum):
    """The effect of a setting in FleetX."""

    USED = "yes"
    """The setting is applied."""
    NONE = "none"
    """It controls kernels or passes that FleetX does not have: accepted and stored, without
    effect.
    """
    REFUSED = "refused"
    """FleetX does not have the technique: switching it on is an error before training starts."""


@dataclasses.dataclass(frozen=True)
class Field(Generic[T]):
    """A setting: a row of the table, and a checked attribute of a DistributedStrategy."""

    number: int
    """Its number in Paddle's distributed_strategy.proto; from 1000 on where Paddle 2.6 has none."""
    default: T
    meaning: str
    name: str = ""
    since: str = "2.0"
    """The Paddle version that introduced it, or "fleetx"."""
    effect: Effect = Effect.USED
    element: type | None = None
    """The type of the elements, for a list."""
    least: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    proto_name: str = ""
    """Its name in a prototxt, where that differs."""

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)

    @overload
    def __get__(self, holder: None, owner: type) -> Field[T]: ...
    @overload
    def __get__(self, holder: Holder, owner: type) -> T: ...
    def __get__(self, holder: Holder | None, owner: type) -> Field[T] | T:
        if holder is None:
            return self
        if self.name not in holder._values:  # registered after the strategy was made
            holder._values[self.name] = self.initial()
        return cast("T", holder._values[self.name])

    def __set__(self, holder: Holder, value: T) -> None:
        holder._assign(self, value)

    @property
    def kind(self) -> str:
        """The name of its type, as messages show it."""
        if self.element is not None:
            return f"list of {self.element.__name__}"
        return type(self.default).__name__

    @property
    def saved_as(self) -> str:
        """Its name in a prototxt."""
        return self.proto_name or self.name

    def initial(self) -> T:
        """Return the default; a new object if it is mutable."""
        return cast("T", list(self.default)) if isinstance(self.default, list) else self.default

    def check(self, value: Any, where: str = "", *, bool_is_int: bool = False) -> T:
        """Return a value as this field stores it.

        Raises TypeError for a value of another type, ValueError for one out of range. `where` is
        the name that messages show; `bool_is_int` takes True for 1, as Paddle does.
        """
        where = where or self.name
        if self.element is not None:
            return cast("T", self._check_list(value, where))
        checked = _convert(type(self.default), value, bool_is_int)
        if checked is None:
            raise TypeError(f"{where} takes a {self.kind}, not {value!r}.")
        self._check_range(checked, where)
        return cast("T", checked)

    def _check_list(self, value: Any, where: str) -> list[Any]:
        assert self.element is not None
        if isinstance(value, Mapping) and self.element is str:
            value = [f"{_name_of(key)}: {item}" for key, item in value.items()]
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise TypeError(f"{where} takes a {self.kind}, not {value!r}.")
        result = []
        for item in value:
            item = _name_of(item) if self.element is str else item
            checked = _convert(self.element, item, False)
            if checked is None:
                raise TypeError(f"{where} takes a {self.kind}, but one element is {item!r}.")
            result.append(checked)
        return result

    def _check_range(self, value: Any, where: str) -> None:
        if self.choices and value not in self.choices:
            raise ValueError(f"{where} is one of {', '.join(self.choices)}, not {value!r}.")
        if self.least is not None and value < self.least:
            raise ValueError(f"{where} must be at least {self.least}, not {value}.")
        if self.above is not None and value <= self.above:
            raise ValueError(f"{where} should be greater than {self.above}, not {value}.")


def _convert(wanted: type, value: Any, bool_is_int: bool) -> Any:
    """Return the value converted to a type; None if it does not have that type."""
    if isinstance(value, bool | np.bool_):
        if wanted is bool:
            return bool(value)
        return int(value) if wanted is int and bool_is_int else None
    if wanted is int and isinstance(value, numbers.Integral):
        return int(value)
    if wanted is float and isinstance(value, numbers.Real):
        return float(value)
    return value if wanted is str and isinstance(value, str) else None


def _name_of(item: Any) -> Any:
    """Return the name of a Variable or of a class of modules; anything else as it is."""
    if isinstance(item, type):
        return item.__name__
    name = getattr(item, "name", None)
    return name if isinstance(name, str) else item


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a similar one, and all names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{hint} There are: {', '.join(names)}."


Rows = tuple[Field[Any], ...]


class Configs(dict[str, Any]):
    """The settings of one technique: a dictionary with fixed keys, whose values are checked."""

    def __init__(self, name: str, fields: Rows) -> None:
        super().__init__((field.name, field.initial()) for field in fields)
        self.name = name
        self.fields = {field.name: field for field in fields}
        self.given: set[str] = set()

    def __setitem__(self, key: str, value: Any) -> None:
        self.assign({key: value})

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set the given keys; the others stay."""
        self.assign(dict(*args, **kwargs))

    def assign(
        self,
        values: Mapping[str, Any],
        *,
        extend: bool = False,
        unknown: Callable[[str], Exception] = ValueError,
    ) -> None:
        """Set the given keys, all or none; the others stay.

        With `extend`, elements are added to lists instead of replacing them; `unknown` makes the
        exception for a key that does not exist.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"{self.name} takes a dict of settings, not {values!r}.")
        for key in values:
            if key not in self.fields:
                raise unknown(f"key:{key} not in {self.name}." + unknown_name(key, self.fields))
        checked = {
            key: self.fields[key].check(value, f"{self.name}[{key!r}]", bool_is_int=extend)
            for key, value in values.items()
        }
        for key, value in checked.items():
            if extend and isinstance(value, list):
                value = self[key] + value
            super().__setitem__(key, value)
            self.given.add(key)

    def __delitem__(self, key: str) -> None:
        raise TypeError(f"settings of {self.name} cannot be removed, only set.")

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        # It is copied and pickled as a plain dictionary.
        return dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Configs:
        result = Configs(self.name, tuple(self.fields.values()))
        dict.update(result, copy.deepcopy(dict(self), memo))
        result.given = set(self.given)
        return result


def setting(
    default: Any,
    *,
    number: int = 0,
    since: str = "fleetx",
    effect: Effect = Effect.USED,
    element: type | None = None,
    least: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a field of a technique's `Config` that needs more than a default.

    Args:
        default: the default; a tuple for a list of `element`s. number: its number in Paddle's
        distributed_strategy.proto; chosen if 0. since: the Paddle version that introduced it, or
        "fleetx". effect: whether it is applied, without effect, or rejected.
        element: the type of the elements, for a tuple.
        least: the smallest value allowed.
        above: a bound that values must exceed.
        choices: the strings allowed.
    """
    row = Field(
        number,
        list(default) if isinstance(default, tuple) else default,
        "",
        since=since,
        effect=effect,
        element=element,
        least=least,
        above=above,
        choices=choices,
    )
    return dataclasses.field(default=default, metadata={_ROW: row})


def rows_of(config: type) -> Rows:
    """Return the settings that a dataclass declares, without their meanings."""
    rows: list[Field[Any]] = []
    taken = {f.metadata[_ROW].number for f in dataclasses.fields(config) if _ROW in f.metadata}
    free = (n for n in range(_FIRST_OWN_NUMBER, 1 << 20) if n not in taken)
    for item in dataclasses.fields(config):
        row: Field[Any] | None = item.metadata.get(_ROW)
        if row is None:
            if item.default is dataclasses.MISSING:
                raise TypeError(
                    f"{config.__qualname__}.{item.name} has no default: a strategy must be "
                    "complete before anything is set on it."
                )
            if not isinstance(item.default, bool | int | float | str):
                raise TypeError(
                    f"{config.__qualname__}.{item.name} is {item.default!r}: settings are bool, "
                    "int, float or str, or a tuple of them by setting(..., element=...)."
                )
            row = Field(0, item.default, "", since="fleetx")
        rows.append(dataclasses.replace(row, name=item.name, number=row.number or next(free)))
    return tuple(rows)


def with_meanings(rows: Rows, config: type) -> Rows:
    """Return the settings with the docstring of each field of the dataclass as its meaning."""
    texts: dict[str, str] = {}
    for kind in reversed(config.__mro__):
        if dataclasses.is_dataclass(kind):
            texts.update(_field_docs(kind))
    return tuple(dataclasses.replace(row, meaning=texts.get(row.name, "")) for row in rows)


def _field_docs(config: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[statement.target.id] = inspect.cleandoc(str(following.value.value))
    return found


def read(config: type[C], values: Mapping[str, Any]) -> C:
    """Return the dataclass with the values of a strategy's `*_configs`; unknown keys stay out."""
    names = {item.name for item in dataclasses.fields(cast("Any", config))}
    given = {name: value for name, value in values.items() if name in names}
    return config(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
