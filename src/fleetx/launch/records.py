"""Records in messages of other launchers, validated before use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

INVALID = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""Exceptions raised for invalid messages; JSON allows non-finite numbers."""
_LONGEST_LIST = 100_000


def checked(record: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return a record whose fields have these types, each optional; raise ValueError for others.

    A `tuple` is a list of strings.
    """
    if not isinstance(record, dict):
        raise ValueError(f"a record is an object, not {type(record).__name__}")
    found = {}
    for name, value in record.items():
        kind = kinds.get(name)
        if kind is None or not _is(value, kind):
            raise ValueError(f"{name!r} of a record is {value!r:.100}")
        found[name] = tuple(value) if kind is tuple else value
    return found


def checked_note(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the note of a message; raise ValueError if it has none."""
    note = message.get("note")
    if not isinstance(note, dict):
        raise ValueError(f"a note is an object, not {type(note).__name__}")
    return note


def _is(value: Any, kind: type) -> bool:
    if kind is tuple:
        is_list = isinstance(value, list) and len(value) <= _LONGEST_LIST
        return is_list and all(isinstance(item, str) for item in value)
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind
