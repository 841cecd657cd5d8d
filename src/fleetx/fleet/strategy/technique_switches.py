"""The part of a DistributedStrategy that follows from the registered techniques.

For every technique there is a switch of its name and, if it has settings, `<name>_configs`. For
type checkers the same is written out in the stub beside this file, which
`python -m fleetx.fleet.strategy.reference --stub` prints.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, overload

import fleetx.techniques  # noqa: F401 - registers ours
from fleetx.step import registry
from fleetx.step.settings import Configs, Field, Rows, rows_of


class ConfigsField:
    """A group of settings, as an attribute of a DistributedStrategy."""

    def __init__(
        self, number: int, fields: Rows, meaning: str, config: type | None = None, name: str = ""
    ) -> None:
        self.number, self.fields, self.meaning, self.name = number, fields, meaning, name
        self.config = config
        """The dataclass that the fields come from, if any."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, holder: None, owner: type) -> ConfigsField: ...
    @overload
    def __get__(self, holder: TechniqueSwitches, owner: type) -> Configs: ...
    def __get__(self, holder: TechniqueSwitches | None, owner: type) -> ConfigsField | Configs:
        if holder is None:
            return self
        if self.name not in holder._configs:  # registered after the strategy was made
            holder._configs[self.name] = Configs(self.name, self.fields)
        return holder._configs[self.name]

    def __set__(self, holder: TechniqueSwitches, values: Mapping[str, Any]) -> None:
        holder._assign_configs(self.__get__(holder, type(holder)), values)


class TechniqueSwitches:
    """The switches and settings of all techniques."""

    _values: dict[str, Any]
    _configs: dict[str, Configs]

    def _assign(self, field: Field[Any], value: Any) -> None:
        raise NotImplementedError

    def _assign_configs(self, configs: Configs, values: Mapping[str, Any]) -> None:
        raise NotImplementedError


def _add(technique: registry.Kind) -> None:
    """Add the switch and the settings of a technique to all strategies, existing ones included."""
    if technique.switch:
        return
    name, (switch, configs) = technique.name, registry.proto_numbers(technique)
    rows = rows_of(technique.Config)
    groups = [f"{name}_configs"] if rows else []
    strategies = (TechniqueSwitches, *TechniqueSwitches.__subclasses__())
    for each in (name, *groups):
        if any(hasattr(kind, each) for kind in strategies):
            raise ValueError(f"a strategy already has a setting {each!r}: choose another name.")
    meaning = inspect.cleandoc(technique.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    setattr(TechniqueSwitches, name, Field(switch, False, meaning, name, since=technique.since))
    for each in groups:
        field = ConfigsField(configs, rows, meaning, technique.Config, each)
        setattr(TechniqueSwitches, each, field)


registry.listen(_add)
