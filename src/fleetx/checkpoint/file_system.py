"""File systems for checkpoints: the interface, and the local file system.

The names are those of Paddle's `fleet.utils.fs` 2.x; those of 1.x are aliases.
"""

from __future__ import annotations

import abc
import os
import shutil
from pathlib import Path


class FSFileExistsError(Exception):
    """An error for a path that already exists."""


class FSFileNotExistsError(Exception):
    """An error for a path that does not exist."""


class FS(abc.ABC):
    """A file system; paths are strings."""

    @abc.abstractmethod
    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder; empty if it is missing."""

    @abc.abstractmethod
    def is_file(self, fs_path: str) -> bool:
        """Return whether the path is a file."""

    @abc.abstractmethod
    def is_dir(self, fs_path: str) -> bool:
        """Return whether the path is a folder."""

    @abc.abstractmethod
    def is_exist(self, fs_path: str) -> bool:
        """Return whether the path exists."""

    @abc.abstractmethod
    def mkdirs(self, fs_path: str) -> None:
        """Create a folder and its parents."""

    @abc.abstractmethod
    def delete(self, fs_path: str) -> None:
        """Remove a file, or a folder with its contents, if it exists."""

    @abc.abstractmethod
    def rename(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a file or folder atomically."""

    @abc.abstractmethod
    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Create an empty file unless it exists."""

    @abc.abstractmethod
    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a local file or folder to the file system."""

    @abc.abstractmethod
    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or folder to this machine."""

    @abc.abstractmethod
    def need_upload_download(self) -> bool:
        """Return whether files must be downloaded to be read."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """Return the names of the folders in a folder; empty if it is missing."""
        return self.ls_dir(fs_path)[0]

    def mv(
        self, src_path: str, dst_path: str, overwrite: bool = False, test_exists: bool = True
    ) -> None:
        """Move a file or folder; replace an existing destination only if requested."""
        if not self.is_exist(src_path):
            raise FSFileNotExistsError(f"{src_path} cannot be moved: it does not exist.")
        if overwrite:
            self.delete(dst_path)
        if self.is_exist(dst_path):
            raise FSFileExistsError(
                f"{src_path} cannot be moved to {dst_path}, which already exists."
            )
        self.rename(src_path, dst_path)

    # 1.x spellings.
    def stat(self, fs_path: str) -> bool:
        """Return whether the path exists (1.x)."""
        return self.is_exist(fs_path)

    def mkdir(self, fs_path: str) -> None:
        """Create a folder and its parents (1.x)."""
        self.mkdirs(fs_path)

    def rmr(self, fs_path: str) -> None:
        """Remove a folder with its contents (1.x)."""
        self.delete(fs_path)

    def rm(self, fs_path: str) -> None:
        """Remove a file (1.x)."""
        self.delete(fs_path)


class LocalFS(FS):
    """The file system of this machine."""

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder; empty if it is missing."""
        if not self.is_exist(fs_path):
            return [], []
        entries = sorted(os.scandir(fs_path), key=lambda entry: entry.name)
        folders = [entry.name for entry in entries if entry.is_dir()]
        return folders, [entry.name for entry in entries if not entry.is_dir()]

    def is_file(self, fs_path: str) -> bool:
        """Return whether the path is a file."""
        return os.path.isfile(fs_path)

    def is_dir(self, fs_path: str) -> bool:
        """Return whether the path is a folder."""
        return os.path.isdir(fs_path)

    def is_exist(self, fs_path: str) -> bool:
        """Return whether the path exists."""
        return os.path.exists(fs_path)

    def mkdirs(self, fs_path: str) -> None:
        """Create a folder and its parents."""
        if self.is_file(fs_path):
            raise AssertionError(f"{fs_path} is already a file")
        os.makedirs(fs_path, exist_ok=True)

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a folder with its contents, if it exists."""
        if self.is_dir(fs_path) and not os.path.islink(fs_path):
            shutil.rmtree(fs_path)
        else:
            Path(fs_path).unlink(missing_ok=True)

    def rename(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a file or folder atomically."""
        os.rename(fs_src_path, fs_dst_path)

    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Create an empty file unless it exists."""
        if self.is_exist(fs_path) and not exist_ok:
            raise FSFileExistsError(f"{fs_path} already exists.")
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
        """Return False: local files are read in place."""
        return False
