"""File systems that checkpoints are written to: the interface, and this machine's own.

The names are those of Paddle's `fleet.utils.fs`, 2.x first; those of 1.x do the same.
"""

from __future__ import annotations

import abc
import os
import shutil
from pathlib import Path


class FSFileExistsError(Exception):
    """Something is already where a file or folder was to go."""


class FSFileNotExistsError(Exception):
    """What was to be moved is not there."""


class FS(abc.ABC):
    """A file system; paths are text."""

    @abc.abstractmethod
    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder; none if it is missing."""

    @abc.abstractmethod
    def is_file(self, fs_path: str) -> bool:
        """Tell whether there is a file."""

    @abc.abstractmethod
    def is_dir(self, fs_path: str) -> bool:
        """Tell whether there is a folder."""

    @abc.abstractmethod
    def is_exist(self, fs_path: str) -> bool:
        """Tell whether there is a file or folder."""

    @abc.abstractmethod
    def mkdirs(self, fs_path: str) -> None:
        """Make a folder and those above it."""

    @abc.abstractmethod
    def delete(self, fs_path: str) -> None:
        """Remove a file, or a folder with all in it, if it is there."""

    @abc.abstractmethod
    def rename(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Give a file or folder another name, in one act."""

    @abc.abstractmethod
    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Make an empty file, unless it is there."""

    @abc.abstractmethod
    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a file or folder of this machine to the file system."""

    @abc.abstractmethod
    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or folder to this machine."""

    @abc.abstractmethod
    def need_upload_download(self) -> bool:
        """Tell whether files must be copied to be read."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """Return the names of the folders in a folder; none if it is missing."""
        return self.ls_dir(fs_path)[0]

    def mv(
        self, src_path: str, dst_path: str, overwrite: bool = False, test_exists: bool = True
    ) -> None:
        """Move a file or folder; what is at the new place is replaced only if asked for."""
        if not self.is_exist(src_path):
            raise FSFileNotExistsError(f"{src_path} is to be moved, but it is not there.")
        if overwrite:
            self.delete(dst_path)
        if self.is_exist(dst_path):
            raise FSFileExistsError(f"{src_path} is to be moved to {dst_path}, which is there.")
        self.rename(src_path, dst_path)

    # 1.x spellings.
    def stat(self, fs_path: str) -> bool:
        """Tell whether there is a file or folder (1.x)."""
        return self.is_exist(fs_path)

    def mkdir(self, fs_path: str) -> None:
        """Make a folder and those above it (1.x)."""
        self.mkdirs(fs_path)

    def rmr(self, fs_path: str) -> None:
        """Remove a folder with all in it (1.x)."""
        self.delete(fs_path)

    def rm(self, fs_path: str) -> None:
        """Remove a file (1.x)."""
        self.delete(fs_path)


class LocalFS(FS):
    """The file system of this machine."""

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder; none if it is missing."""
        if not self.is_exist(fs_path):
            return [], []
        entries = sorted(os.scandir(fs_path), key=lambda entry: entry.name)
        folders = [entry.name for entry in entries if entry.is_dir()]
        return folders, [entry.name for entry in entries if not entry.is_dir()]

    def is_file(self, fs_path: str) -> bool:
        """Tell whether there is a file."""
        return os.path.isfile(fs_path)

    def is_dir(self, fs_path: str) -> bool:
        """Tell whether there is a folder."""
        return os.path.isdir(fs_path)

    def is_exist(self, fs_path: str) -> bool:
        """Tell whether there is a file or folder."""
        return os.path.exists(fs_path)

    def mkdirs(self, fs_path: str) -> None:
        """Make a folder and those above it."""
        if self.is_file(fs_path):
            raise AssertionError(f"{fs_path} is already a file")
        os.makedirs(fs_path, exist_ok=True)

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a folder with all in it, if it is there."""
        if self.is_dir(fs_path) and not os.path.islink(fs_path):
            shutil.rmtree(fs_path)
        else:
            Path(fs_path).unlink(missing_ok=True)

    def rename(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Give a file or folder another name, in one act."""
        os.rename(fs_src_path, fs_dst_path)

    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Make an empty file, unless it is there."""
        if self.is_exist(fs_path) and not exist_ok:
            raise FSFileExistsError(f"{fs_path} is already there.")
        Path(fs_path).touch()

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a file or folder."""
        if self.is_dir(local_path):
            shutil.copytree(local_path, fs_path)
        else:
            shutil.copy2(local_path, fs_path)

    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or folder."""
        self.upload(fs_path, local_path)

    def need_upload_download(self) -> bool:
        """Files of this machine are read where they are."""
        return False
