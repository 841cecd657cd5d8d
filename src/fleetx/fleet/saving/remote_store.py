"""The checkpoints in a remote folder: object stores have neither locks nor renames.

A number is claimed by a file that only one writer can create. The manifest is written last and
removed first, so that a folder without one is a save that did not finish, or a checkpoint that is
being removed; readers ignore both.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from contextlib import ExitStack

from fleetx.checkpoint.remote_folder import RemoteFolder, open_file_system
from fleetx.fleet.saving.checkpoint_files import MANIFEST

logger = logging.getLogger("fleetx.fleet")

_FOLDER = re.compile(r"checkpoint\.(\d+)")
_CLAIM = "claim"
# What did not finish is removed after so many newer checkpoints: its writer may still be at work.
_FINISHED_SINCE = 3


class RemoteStore:
    """A remote folder with numbered checkpoints."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._fs, self._path = open_file_system(self._url)

    def __str__(self) -> str:
        return self._url

    def _folder(self, number: int) -> RemoteFolder:
        name = f"checkpoint.{number}"
        return RemoteFolder(self._fs, f"{self._path}/{name}", f"{self._url}/{name}")

    def _numbers(self) -> list[int]:
        """Return the numbers of all folders, finished or not, in order."""
        try:
            listed = self._fs.ls(self._path, detail=False)
        except FileNotFoundError:
            return []
        names = (str(entry).rstrip("/").rpartition("/")[2] for entry in listed)
        return sorted(int(found[1]) for found in map(_FOLDER.fullmatch, names) if found)

    def numbered(self) -> dict[int, RemoteFolder]:
        """Return the checkpoints that have a manifest, by number, oldest first."""
        folders = {number: self._folder(number) for number in self._numbers()}
        return {n: folder for n, folder in folders.items() if folder.size(MANIFEST) is not None}

    def begin(self, stack: ExitStack) -> int:
        """Claim the next number; the first worker's call."""
        numbers, finished = self._numbers(), list(self.numbered())
        for number in numbers:
            if number not in finished and sum(n > number for n in finished) >= _FINISHED_SINCE:
                self._folder(number).remove_all()
        number = max(numbers, default=-1) + 1
        holder = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
        while not self._folder(number).create_exclusively(_CLAIM, holder):
            number += 1
        return number

    def unfinished(self, number: int, token: int) -> RemoteFolder:
        """Return where all workers write their parts: the folder itself."""
        return self._folder(number)

    def make(self, folder: RemoteFolder, stack: ExitStack) -> None:
        """Remove the folder when the stack is closed, unless it is published by then."""
        stack.callback(self._clean, folder)

    def _clean(self, folder: RemoteFolder) -> None:
        try:
            if folder.size(MANIFEST) is None:
                folder.remove_all()
        except Exception as error:  # of any store; it must not hide why the save failed
            logger.warning("%s is unfinished and could not be removed (%s).", folder, error)

    def publish(self, folder: RemoteFolder, number: int) -> None:
        """Give up the claim: the manifest has made the folder a checkpoint."""
        folder.remove(_CLAIM)

    def location(self, number: int) -> str:
        """Return the address of a checkpoint."""
        return str(self._folder(number))

    def remove(self, number: int) -> None:
        """Remove a checkpoint, its manifest first."""
        self._folder(number).remove(MANIFEST)
        self._folder(number).remove_all()
