"""Checksums beside files in Paddle's formats, which have no field for them.

A file `folder/name` has its checksum in `folder/.fleetx/name.json`, which other programs ignore;
folders with a file per variable have none, because Paddle reads everything below them. It is
written before the file is renamed, together with the checksum of the previous file: after a crash
either of the two is accepted, and nothing else.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.file_list import describe
from fleetx.checkpoint.sealed_json import seal, unseal

FOLDER = ".fleetx"

_log = logging.getLogger("fleetx.checkpoint")


def side_file(path: Path) -> Path:
    """Return the file that holds the checksum of a file."""
    return path.parent / FOLDER / f"{path.name}.json"


def describe_beside(temporary: Path, target: Path) -> tuple[Path, bytes]:
    """Return the side file, and its content, of a file that is about to be renamed to `target`."""
    accepted = [describe(temporary)]
    if target.is_file():
        before = describe(target)
        if before not in accepted:
            accepted.append(before)
    content = seal({"format": "fleetx-checksum", "version": 1, "accepted": accepted})
    return side_file(target), content


def verify(path: str | os.PathLike[str]) -> bool:
    """Check a file against its side file; return False if there is none."""
    found = Path(os.path.realpath(path))
    side = side_file(found)
    if not side.is_file():
        _log.debug("%s has no checksum in %s and is read unverified.", path, FOLDER)
        return False
    accepted = unseal(side.read_bytes(), side)["accepted"]
    if describe(found) not in accepted:
        raise FormatError(
            str(path),
            f"does not match its checksum in {side}: it was damaged, or rewritten by another "
            "program; remove that file to load it anyway.",
        )
    return True
