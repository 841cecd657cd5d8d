"""The checkpoints in a folder of this machine's file systems.

A checkpoint is written into a temporary folder of a unique name and published by one rename, with
the lock of the folder held.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import ExitStack
from pathlib import Path

from fleetx.checkpoint.atomic import sync_folder
from fleetx.checkpoint.folder import LocalFolder
from fleetx.checkpoint.folder_lock import locked

_FOLDER = re.compile(r"checkpoint\.(\d+)")
_TEMPORARY = re.compile(r"checkpoint\..*\.tmp")


class LocalStore:
    """A folder with numbered checkpoints."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def numbered(self) -> dict[int, LocalFolder]:
        """Return the checkpoints, whole or not, by number, oldest first."""
        found = {}
        if self.root.is_dir():
            for entry in self.root.iterdir():
                match = _FOLDER.fullmatch(entry.name)
                if match and entry.is_dir():
                    found[int(match.group(1))] = LocalFolder(entry)
        return dict(sorted(found.items()))

    def begin(self, stack: ExitStack) -> int:
        """Reserve the next number for as long as the stack is open; the first worker's call."""
        self.root.mkdir(parents=True, exist_ok=True)
        stack.enter_context(locked(self.root))
        for entry in self.root.iterdir():
            # Left by saves that were killed: no other save runs while the lock is held.
            if _TEMPORARY.fullmatch(entry.name):
                shutil.rmtree(entry, ignore_errors=True)
        return max(self.numbered(), default=-1) + 1

    def unfinished(self, number: int, token: int) -> LocalFolder:
        """Return where all workers write their parts."""
        return LocalFolder(self.root / f"checkpoint.{number}.{token:012x}.tmp")

    def make(self, folder: LocalFolder, stack: ExitStack) -> None:
        """Create that folder; whatever is there when the stack is closed is removed."""
        folder.path.mkdir()
        stack.callback(shutil.rmtree, folder.path, ignore_errors=True)

    def publish(self, folder: LocalFolder, number: int) -> None:
        """Give a folder with a manifest its final name."""
        sync_folder(folder.path)
        os.rename(folder.path, self.location(number))
        sync_folder(self.root)

    def location(self, number: int) -> Path:
        """Return the path of a checkpoint."""
        return self.root / f"checkpoint.{number}"

    def remove(self, number: int) -> None:
        """Remove a checkpoint; a reader never sees one that is partly removed."""
        old = self.location(number)
        shutil.rmtree(old.rename(old.with_name(f"{old.name}.{secrets.token_hex(6)}.tmp")))
