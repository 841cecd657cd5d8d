"""A DistributedStrategy as protobuf text, the format of Paddle's `save_to_prototxt`.

The message is built from the table of settings, with Paddle 2.6's field numbers and names; it lives
in a descriptor pool of its own.
"""

from __future__ import annotations

import functools
from typing import Any

from fleetx.fleet.strategy import configs as tables
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy, settings
from fleetx.fleet.strategy.technique_switches import ConfigsField
from fleetx.step.settings import Field, Rows

PACKAGE = "paddle.fleet"
_ROOT = "DistributedStrategy"
_TYPES = {bool: "TYPE_BOOL", int: "TYPE_INT32", float: "TYPE_FLOAT", str: "TYPE_STRING"}
_MODES = {"COLLECTIVE": 1, "PS": 2, "PIPELINE": 3, "HETER": 4}


def _groups() -> dict[str, tuple[int, Rows]]:
    rows = settings()
    found = {n: (r.number, r.fields) for n, r in rows.items() if isinstance(r, ConfigsField)}
    found["build_strategy"] = 201, tables.BUILD
    found["execution_strategy"] = 202, tables.EXECUTION
    return found


def _flags() -> dict[str, Field[Any]]:
    return {n: row for n, row in settings().items() if isinstance(row, Field)}


def _add_field(message: Any, row: Field[Any]) -> None:
    repeated = row.element is not None
    field = message.field.add(name=row.saved_as, number=row.number, label=3 if repeated else 1)
    if row.name == "mode":
        field.type, field.type_name = field.TYPE_ENUM, f".{PACKAGE}.Mode"
    else:
        field.type = getattr(field, _TYPES[row.element or type(row.default)])


def _message_class() -> Any:
    return _make_message_class(tuple(settings()))


@functools.cache
def _make_message_class(_: tuple[str, ...]) -> Any:
    """Return the class for the settings of these names: techniques may still be registered."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="fleetx/distributed_strategy.proto", package=PACKAGE, syntax="proto2"
    )
    modes = file.enum_type.add(name="Mode")
    for name, number in _MODES.items():
        modes.value.add(name=name, number=number)
    root = file.message_type.add(name=_ROOT)
    for row in _flags().values():
        _add_field(root, row)
    for name, (number, rows) in _groups().items():
        group = file.message_type.add(name=f"Configs_{name}")
        for row in rows:
            _add_field(group, row)
        field = root.field.add(name=name, number=number, label=1, type=11)
        field.type_name = f".{PACKAGE}.Configs_{name}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{_ROOT}"))


def to_text(strategy: DistributedStrategy) -> str:
    """Return the assigned settings of a strategy as protobuf text."""
    from google.protobuf import text_format

    message = _message_class()()
    for name, row in _flags().items():
        if name in strategy._given:
            value = strategy._values[name]
            setattr(message, row.saved_as, _MODES[value] if name == "mode" else value)
    for name, configs in strategy._current_configs().items():
        group = getattr(message, name)
        for key in configs.fields:
            if key not in configs.given:
                continue
            if isinstance(configs[key], list):
                getattr(group, key).extend(configs[key])
            else:
                setattr(group, key, configs[key])
    return text_format.MessageToString(message)


def merge_text(strategy: DistributedStrategy, text: str, source: str) -> None:
    """Apply the settings in protobuf text to a strategy; `source` names it in errors."""
    from google.protobuf import text_format

    try:
        message = text_format.Parse(text, _message_class()())
    except text_format.ParseError as error:
        raise ValueError(f"{source} is not a saved DistributedStrategy: {error}") from error
    by_saved_name = {row.saved_as: row for row in _flags().values()}
    modes = {number: name for name, number in _MODES.items()}
    given = {field.name: value for field, value in message.ListFields()}
    # Flags first: setting a_sync resets a setting that the file may hold as well.
    for name, value in given.items():
        if name in by_saved_name:
            row = by_saved_name[name]
            strategy._assign(row, modes[value] if name == "mode" else value)
    groups = _groups()
    for name, group in given.items():
        if name in groups:
            rows = {row.name: row for row in groups[name][1]}
            values = {
                field.name: _exact(value, rows[field.name]) for field, value in group.ListFields()
            }
            strategy._assign_configs(strategy._configs[name], values)
    for name in ("build_strategy", "execution_strategy"):
        if name in given:
            strategy._objects.pop(name, None)


def _exact(value: Any, row: Field[Any]) -> Any:
    """Return a value of the message; a number in single precision as it was written (0.8)."""
    if row.element is not None:
        return [_short(item) for item in value] if row.element is float else list(value)
    return _short(value) if isinstance(row.default, float) else value


def _short(value: float) -> float:
    from google.protobuf.internal import type_checkers

    return float(type_checkers.ToShortestFloat(value))
