"""One setting of a DistributedStrategy: its name, type, default, meaning, and the check of a value.

A `Field` is a row of the table of settings. As an attribute of the class `DistributedStrategy` it
is the setting itself; in a tuple it is a key of one of the `*_configs` dictionaries.
"""

from __future__ import annotations

import dataclasses
import difflib
import numbers
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import numpy as np

if TYPE_CHECKING:
    from fleetx.fleet.strategy import DistributedStrategy

T = TypeVar("T")


class Effect(Enum):
    """What a setting does here."""

    USED = "yes"
    """It is obeyed."""
    NONE = "none"
    """It steers kernels or passes that do not exist here: accepted, kept, without effect."""
    REFUSED = "refused"
    """The technique does not exist here: switching it on is an error before training starts."""


@dataclasses.dataclass(frozen=True)
class Field(Generic[T]):
    """A setting: a row of the table, and a checked attribute of a DistributedStrategy."""

    number: int
    """Its number in Paddle's distributed_strategy.proto; from 1000 on where Paddle 2.6 has none."""
    default: T
    meaning: str
    name: str = ""
    since: str = "2.0"
    """The Paddle version that brought it, or "fleetx"."""
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
    def __get__(self, holder: DistributedStrategy, owner: type) -> T: ...
    def __get__(self, holder: DistributedStrategy | None, owner: type) -> Field[T] | T:
        if holder is None:
            return self
        return cast("T", holder._values[self.name])

    def __set__(self, holder: DistributedStrategy, value: T) -> None:
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
        """Return the default, a new object if it can change."""
        return cast("T", list(self.default)) if isinstance(self.default, list) else self.default

    def check(self, value: Any, where: str = "", *, bool_is_int: bool = False) -> T:
        """Return a value as this field keeps it.

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
    """Return the value as the wanted type, None if it is not of that type."""
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
    """Return the end of a message about a name that is not one: what it may have been, and all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{hint} There are: {', '.join(names)}."
