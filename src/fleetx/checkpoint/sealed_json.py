"""JSON files with a checksum of their own content, which detects flipped bits.

The first line of the text holds a hash of all bytes after it; the whole is still plain JSON, which
other programs can read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetx.checkpoint.file_errors import FormatError

_KEY = "blake2b"
_FIRST = re.compile(rb'\{"blake2b": "([0-9a-f]{32})",\n')


def digest(data: bytes | memoryview) -> str:
    """Return the checksum of bytes, as text."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def seal(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as text with its checksum."""
    if _KEY in value or not value:
        raise ValueError(f"a sealed object must have entries, and none may be named {_KEY!r}.")
    rest = json.dumps(value, indent=1).encode()[2:]  # without the brace and the line break
    return f'{{"{_KEY}": "{digest(rest)}",\n'.encode() + rest


def is_sealed(data: bytes) -> bool:
    """Return whether a text has a checksum, valid or not."""
    return data.startswith(f'{{"{_KEY}"'.encode())


def unseal(data: bytes, source: str | Path) -> dict[str, Any]:
    """Return the JSON object of a text after verifying its checksum."""
    first = _FIRST.match(data)
    if first is None or digest(data[first.end() :]) != first[1].decode():
        raise FormatError(
            str(source), "does not match its checksum: it was damaged, truncated or edited."
        )
    value: dict[str, Any] = json.loads(data)
    del value[_KEY]
    return value


def read_json(path: Path, kind: str, version: int, *, unsealed: int, name: str) -> dict[str, Any]:
    """Read the JSON object of a file and verify its checksum, format and version.

    Args:
        path: the file.
        kind: the required value of its entry "format".
        version: its version if it has a checksum.
        unsealed: its version if it has none: FleetX 0.1 wrote files without.
        name: what the file is, for the error message.
    """
    source, data = str(path), path.read_bytes()
    sealed = is_sealed(data)
    try:
        value = unseal(data, path) if sealed else json.loads(data)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FormatError(source, f"is truncated or not valid JSON ({error}).") from error
    if not isinstance(value, dict) or value.get("format") != kind:
        raise FormatError(source, f"is not {name}.")
    if value.get("version") != (version if sealed else unsealed):
        raise FormatError(
            source,
            f"has version {value.get('version')} and {'a' if sealed else 'no'} checksum; this "
            f"FleetX reads version {version} with a checksum and version {unsealed} without.",
        )
    return value
