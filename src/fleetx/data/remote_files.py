"""Remote files through fsspec: http, s3, hdfs, … or a local folder, depending on the URL.

A file is fetched in ranges to a `.part` file next to its target and renamed when it is complete and
its md5 is correct. After a broken connection the download resumes, in this run or a later one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

logger = logging.getLogger("fleetx.data")
Advance = Callable[[int], None]
_RANGE, _SMALLEST_RANGE = 4 << 20, 64 << 10
# Baidu's object storage provides the S3 protocol at this address.
_BOS = "https://s3.bj.bcebos.com"


class DownloadError(OSError):
    """An error for a file that could not be fetched, or has the wrong content."""


class RemoteFolder:
    """A folder with a URL such as https://host/data, s3://bucket/data or hdfs://host:port/data.

    bos://bucket/data is read with the S3 protocol.
    """

    def __init__(
        self, url: str, *, tries: int = 5, pause_seconds: float = 0.5, **options: Any
    ) -> None:
        """Open a folder, without any request yet.

        Args:
            url: the address.
            tries: the number of consecutive attempts without progress before giving up.
            pause_seconds: the pause after the first of them; doubled after each further one.
            options: options of fsspec's file system.
        """
        try:
            import fsspec
        except ImportError as error:
            raise ModuleNotFoundError(
                "Downloading needs fsspec: pip install 'fleetx[download]'."
            ) from error
        self.url = url.rstrip("/")
        self._tries, self._pause = tries, pause_seconds
        if url.startswith("bos://"):
            url = f"s3://{url.removeprefix('bos://')}"
            options.setdefault("client_kwargs", {}).setdefault("endpoint_url", _BOS)
        # fsspec caches file systems and their connections; those of this object are closed
        # when it is garbage-collected.
        options.setdefault("skip_instance_cache", True)
        try:
            self._files, root = fsspec.core.url_to_fs(url, **options)
        except ImportError as error:
            protocol = self.url.partition("://")[0]
            raise ModuleNotFoundError(
                f"{self.url} cannot be read, since a package for {protocol}:// is missing: {error}."
            ) from error
        except ValueError as error:
            raise ValueError(f"{self.url} cannot be read: {error}.") from error
        except OSError as error:
            raise DownloadError(f"{self.url} cannot be reached: {error}") from error
        self._root = str(root).rstrip("/")

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        return bytes(self._ask(name, self._files.cat_file))

    def size(self, name: str) -> int | None:
        """Return the length of a file; None if the server does not report it."""
        return self._ask(name, lambda path: self._files.info(path)["size"])

    def _ask(self, name: str, question: Callable[[str], Any]) -> Any:
        """Send a short request about a file, again if there is no reply."""
        for attempt in range(1, self._tries + 1):
            try:
                return question(f"{self._root}/{name}")
            except Exception as error:  # every file system has its own errors
                if _is_missing(error):
                    raise FileNotFoundError(f"{self.url} holds no file {name}.") from error
                if _is_final(error) or attempt == self._tries:
                    reason = error.__cause__ or error
                    raise DownloadError(
                        f"{self.url}/{name} could not be read in {attempt} attempts: "
                        f"{reason or type(reason).__name__}"
                    ) from error
                time.sleep(self._pause * 2 ** (attempt - 1))
        raise AssertionError("tries is at least 1")

    def fetch(self, name: str, target: Path, md5: str, advance: Advance | None = None) -> None:
        """Fetch a file to `target`, resuming from `target`.part; call `advance` on progress.

        A broken connection is reopened until several consecutive attempts make no progress. If the
        md5 is wrong after resuming an older part, the file is fetched once more from the beginning.
        """
        part = target.with_name(target.name + ".part")
        target.parent.mkdir(parents=True, exist_ok=True)
        went_on = part.exists()
        self._complete(name, part, advance or (lambda count: None))
        found = file_md5(part)
        if found != md5 and went_on:
            logger.warning("%s does not match the file at %s: starting again.", part, self.url)
            part.unlink()
            self._complete(name, part, lambda count: None)
            found = file_md5(part)
        if found != md5:
            part.unlink()
            raise DownloadError(
                f"{self.url}/{name} has the md5 {found}, but the list has {md5}: the file or the "
                "list is wrong."
            )
        os.replace(part, target)

    def _complete(self, name: str, part: Path, advance: Advance) -> None:
        """Append to `part` until it is as long as the file."""
        size = self.size(name)
        if part.exists() and size is not None and part.stat().st_size > size:
            part.unlink()
        if part.exists():
            advance(part.stat().st_size)
        length, failures = _RANGE, 0
        while True:
            before = _length(part)
            try:
                self._append(name, part, size, length, advance)
                return
            except Exception as error:  # every file system has its own errors
                after = _length(part)
                failures = 1 if after > before else failures + 1
                if _is_final(error) or failures >= self._tries:
                    raise DownloadError(
                        f"{self.url}/{name} could not be downloaded in {failures} attempts: "
                        f"{error or type(error).__name__}; start again to resume at {after} bytes."
                    ) from error
                # Only complete ranges count: shorter ones succeed on a bad connection.
                length = max(_SMALLEST_RANGE, length // 8)
                if failures > 1:
                    time.sleep(self._pause * 2 ** (failures - 2))

    def _append(
        self, name: str, part: Path, size: int | None, length: int, advance: Advance
    ) -> None:
        have = _length(part)
        if part.exists() and have == size:
            return
        path = f"{self._root}/{name}"
        with open(part, "ab") as out:
            ranges = self._files.open(path, "rb", block_size=length, cache_type="none")
            with ranges as source:
                try:
                    source.seek(have)
                    content = source.read(length)
                except ValueError:  # fsspec's error for a server without ranges
                    self._append_anew(path, out, length, advance)
                    return
                while content:
                    out.write(content)
                    advance(len(content))
                    content = source.read(length)
            have = out.tell()
        if size is not None and have != size:
            raise DownloadError(f"{self.url}/{name} ended after {have} of {size} bytes")

    def _append_anew(self, path: str, out: Any, length: int, advance: Advance) -> None:
        """Read a file from its beginning as one stream, overwriting the existing part."""
        advance(-out.tell())
        out.truncate(0)
        with self._files.open(path, "rb", block_size=0) as source:
            while content := source.read(length):
                out.write(content)
                advance(len(content))


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _is_missing(error: Exception) -> bool:
    """Return whether the server has replied that the file does not exist.

    fsspec's http raises the same error without a reply, with another cause.
    """
    status = getattr(error.__cause__, "status", None)
    return isinstance(error, FileNotFoundError) and (
        error.__cause__ is None or status in (404, 410)
    )


def _is_final(error: Exception) -> bool:
    """Return whether another attempt would fail in the same way."""
    final = (PermissionError, IsADirectoryError, NotImplementedError)
    return isinstance(error, final) or _is_missing(error)


def file_md5(path: Path) -> str:
    """Return the md5 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
