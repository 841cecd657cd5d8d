"""JSON files that carry their own checksum, so that no flipped bit is read as another value.

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
        raise ValueError(f"a sealed object has entries, and none is called {_KEY!r}.")
    rest = json.dumps(value, indent=1).encode()[2:]  # without the brace and the line break
    return f'{{"{_KEY}": "{digest(rest)}",\n'.encode() + rest


def is_sealed(data: bytes) -> bool:
    """Return whether a text claims to have a checksum."""
    return data.startswith(f'{{"{_KEY}"'.encode())


def unseal(data: bytes, source: str | Path) -> dict[str, Any]:
    """Return the JSON object of a text whose checksum is right; raise FormatError otherwise."""
    first = _FIRST.match(data)
    if first is None or digest(data[first.end() :]) != first[1].decode():
        raise FormatError(
            str(source), "does not match its checksum: it was damaged, cut short or edited."
        )
    value: dict[str, Any] = json.loads(data)
    del value[_KEY]
    return value
