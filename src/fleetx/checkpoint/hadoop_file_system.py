"""HDFS and compatible file systems through the command `hadoop fs`, as in Paddle's HDFSClient.

`HadoopFS` has the methods of Paddle 2.x, `HadoopFSOf18` those of 1.8. A command that fails raises
an error with its output.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fleetx.checkpoint.file_system import FS, FSFileExistsError, FSFileNotExistsError


class ExecuteError(Exception):
    """An error for a command of the file system that failed."""


class FSTimeOut(Exception):
    """An error for a command of the file system that took too long."""


class FSShellCmdAborted(ExecuteError):
    """An error for a command of the file system that was ended by a signal."""


class HadoopFS(FS):
    """A remote file system behind `<hadoop_home>/bin/hadoop fs`."""

    def __init__(
        self,
        hadoop_home: str | None,
        configs: Mapping[str, str] | None,
        time_out: int = 5 * 60 * 1000,
        sleep_inter: int = 1000,
    ) -> None:
        """Take the folder of Hadoop and its settings.

        Args:
            hadoop_home: the folder with `bin/hadoop`; None for the command `hadoop` of the PATH.
            configs: settings such as `fs.default.name` and `hadoop.job.ugi`.
            time_out: the time limit of a command, in milliseconds.
            sleep_inter: accepted; a command that fails is not repeated.
        """
        del sleep_inter
        self._time_out = time_out / 1000
        program = "hadoop" if hadoop_home is None else os.path.join(hadoop_home, "bin", "hadoop")
        self._command = [program, "fs"]
        self._command += [f"-D{name}={value}" for name, value in (configs or {}).items()]

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self._command, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self._time_out)
        except subprocess.TimeoutExpired:
            raise FSTimeOut(
                f"{' '.join(arguments)} took more than {self._time_out:g} s; increase time_out "
                "(milliseconds)."
            ) from None
        except FileNotFoundError:
            raise ExecuteError(
                f"{self._command[0]} was not found; hadoop_home must be the folder with "
                "bin/hadoop, or PATH must have it."
            ) from None
        if done.returncode < 0:
            raise FSShellCmdAborted(f"{' '.join(arguments)} ended by signal {-done.returncode}.")
        return done

    def _must(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            raise ExecuteError(f"hadoop fs {' '.join(arguments)} failed: {said}")
        return done.stdout

    def _listed(self, path: str, *options: str) -> list[tuple[bool, str]]:
        """Return the entries of a folder: whether each is a folder, and its whole path."""
        rows = [line.split(maxsplit=7) for line in self._must("-ls", *options, path).splitlines()]
        return [(row[0].startswith("d"), row[7]) for row in rows if len(row) == 8]

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder; empty if it is missing."""
        if not self.is_exist(fs_path):
            return [], []
        entries = [(folder, os.path.basename(path)) for folder, path in self._listed(fs_path)]
        return [n for folder, n in entries if folder], [n for folder, n in entries if not folder]

    def is_exist(self, fs_path: str) -> bool:
        """Return whether the path exists."""
        return self._run("-test", "-e", fs_path).returncode == 0

    def is_dir(self, fs_path: str) -> bool:
        """Return whether the path is a folder."""
        return self._run("-test", "-d", fs_path).returncode == 0

    def is_file(self, fs_path: str) -> bool:
        """Return whether the path is a file."""
        return self.is_exist(fs_path) and not self.is_dir(fs_path)

    def mkdirs(self, fs_path: str) -> None:
        """Create a folder and its parents."""
        self._must("-mkdir", "-p", fs_path)

    def delete(self, fs_path: str) -> bool:  # type: ignore[override] # 1.8 tells whether it worked
        """Remove a file, or a folder with its contents, if it exists."""
        if self.is_exist(fs_path):
            self._must("-rm", "-r", fs_path)
        return True

    def rename(self, fs_src_path: str, fs_dst_path: str, overwrite: bool = False) -> bool:  # type: ignore[override]
        """Rename a file or folder; replace an existing destination only if requested."""
        if overwrite:
            self.delete(fs_dst_path)
        self._must("-mv", fs_src_path, fs_dst_path)
        return True

    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Create an empty file unless it exists."""
        if not self.is_exist(fs_path):
            self._must("-touchz", fs_path)
        elif not exist_ok:
            raise FSFileExistsError(f"{fs_path} already exists.")

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a local file or folder to the file system."""
        if not os.path.exists(local_path):
            raise FSFileNotExistsError(f"{local_path} cannot be uploaded: it does not exist.")
        if self.is_exist(fs_path):
            raise FSFileExistsError(f"{fs_path} already exists; delete it before uploading.")
        self._must("-put", local_path, fs_path)

    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or folder to this machine."""
        if not self.is_exist(fs_path):
            raise FSFileNotExistsError(f"{fs_path} cannot be downloaded: it does not exist.")
        self._must("-get", fs_path, local_path)

    def need_upload_download(self) -> bool:
        """Return True: files must be downloaded to be read."""
        return True

    def cat(self, fs_path: str) -> str:
        """Return the text of a file; '' if it is missing."""
        return self._must("-cat", fs_path).rstrip("\n") if self.is_exist(fs_path) else ""


class HadoopFSOf18(HadoopFS):
    """The methods and arguments of `HDFSClient` in Paddle 1.8."""

    def makedirs(self, hdfs_path: str) -> bool:
        """Create a folder and its parents."""
        self.mkdirs(hdfs_path)
        return True

    def ls(self, hdfs_path: str) -> list[str]:
        """Return the whole paths of the entries of a folder; empty if it is missing."""
        if not self.is_exist(hdfs_path):
            return []
        return [path for _, path in self._listed(hdfs_path)]

    def lsr(
        self,
        hdfs_path: str,
        excludes: Sequence[str] | bool = (),
        only_file: bool = True,
        sort: bool = True,
    ) -> list[str]:
        """Return the whole paths of all entries below a folder, except those that are excluded."""
        del sort  # the command sorts
        skipped = () if isinstance(excludes, bool) else excludes
        if not self.is_exist(hdfs_path):
            return []
        found = [
            path for folder, path in self._listed(hdfs_path, "-R") if not (folder and only_file)
        ]
        return [path for path in found if path not in skipped]

    def upload(  # type: ignore[override] # 1.8 has the arguments the other way round
        self,
        hdfs_path: str,
        local_path: str,
        overwrite: bool = False,
        retry_times: int = 5,
        multi_processes: int = 1,
    ) -> bool:
        """Copy a local file, or the files of a folder, to the file system."""
        del retry_times
        if overwrite:
            self.delete(hdfs_path)
        if not os.path.isdir(local_path):
            super().upload(local_path, hdfs_path)
            return True
        multi_upload(self, hdfs_path, local_path, multi_processes, overwrite)
        return True

    def upload_dir(self, dest_dir: str, local_dir: str, overwrite: bool = False) -> None:
        """Copy a local folder into a folder of the file system."""
        target = os.path.join(dest_dir, os.path.basename(os.path.normpath(local_dir)))
        if overwrite:
            self.delete(target)
        super().upload(local_dir, target)

    def download(  # type: ignore[override] # 1.8 tells whether it worked
        self,
        hdfs_path: str,
        local_path: str,
        overwrite: bool = False,
        unzip: bool = False,
        multi_processes: int = 1,
    ) -> bool:
        """Copy a file, or the files of a folder, to this machine."""
        del multi_processes
        if unzip:
            raise ValueError("unzip=True is not supported; unpack the file after downloading it.")
        if os.path.exists(local_path) and not os.path.isdir(local_path):
            if not overwrite:
                raise FSFileExistsError(f"{local_path} already exists; pass overwrite=True.")
            Path(local_path).unlink()
        super().download(hdfs_path, local_path)
        return True

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Create a folder of this machine."""
        os.makedirs(local_path, exist_ok=True)

    @staticmethod
    def split_files(files: Sequence[str], trainer_id: int, trainers: int) -> list[str]:
        """Return a worker's shard: every `trainers`-th file, starting with its rank."""
        return list(files[trainer_id::trainers])


def multi_download(
    client: HadoopFSOf18,
    hdfs_path: str,
    local_path: str,
    trainer_id: int,
    trainers: int,
    multi_processes: int = 5,
) -> list[str]:
    """Download a worker's shard of the files below a folder; return the local paths."""
    os.makedirs(local_path, exist_ok=True)
    mine = client.split_files(client.lsr(hdfs_path), trainer_id, trainers)
    targets = [os.path.join(local_path, os.path.relpath(path, hdfs_path)) for path in mine]
    for target in targets:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    with ThreadPoolExecutor(max(1, multi_processes)) as pool:
        list(pool.map(client.download, mine, targets))
    return targets


def multi_upload(
    client: HadoopFSOf18,
    hdfs_path: str,
    local_path: str,
    multi_processes: int = 5,
    overwrite: bool = False,
    sync: bool = True,
) -> None:
    """Upload the files below a local folder to a folder of the file system."""
    del sync  # commands are synchronous
    files = sorted(str(path) for path in Path(local_path).rglob("*") if path.is_file())
    targets = [os.path.join(hdfs_path, os.path.relpath(path, local_path)) for path in files]
    for folder in sorted({os.path.dirname(target) for target in targets}):
        client.mkdirs(folder)

    def upload(file: str, target: str) -> None:
        client.upload(target, file, overwrite)

    with ThreadPoolExecutor(max(1, multi_processes)) as pool:
        list(pool.map(upload, files, targets))
