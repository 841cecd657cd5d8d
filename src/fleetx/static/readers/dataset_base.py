"""Base of QueueDataset and InMemoryDataset: settings, and parsing of text files to feeds.

The files hold samples in the multi-slot format, or are turned into it by a pipe command. Iterating
a dataset yields feeds, prefetched by a background thread; batches do not depend on the number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fleetx.static.errors import DataFormatError
from fleetx.static.graph.dtypes import VarType
from fleetx.static.readers.background_reading import BackgroundIterator
from fleetx.static.readers.batch import batch
from fleetx.static.readers.data_feeder import Feed, Slot, slot_of
from fleetx.static.readers.multi_slot import Instance, MultiSlotFormat, read_lines

_CHUNK = 256  # samples that a file's thread queues at once
BATCHES_AHEAD = 4


class DatasetBase:
    """Settings of both kinds of datasets, and parsing of files to feeds."""

    feed_type = "MultiSlotDataFeed"

    def __init__(self) -> None:
        self.batch_size = 1
        self.thread_num = 1
        self.filelist: list[str] = []
        self.pipe_command = "cat"
        self.download_cmd = "cat"
        self.parse_ins_id = False
        self.parse_content = False
        self._slots: list[Slot] = []

    # -- settings --------------------------------------------------------------------------------
    def init(
        self,
        batch_size: int = 1,
        thread_num: int = 1,
        use_var: Sequence[Any] = (),
        pipe_command: str = "cat",
        input_type: int = 0,
        fs_name: str = "",
        fs_ugi: str = "",
        download_cmd: str = "cat",
        **more: Any,
    ) -> None:
        """Set everything at once (2.x); `more` are settings of InMemoryDataset."""
        self.set_batch_size(batch_size)
        self.set_thread(thread_num)
        self.set_use_var(use_var)
        self.set_pipe_command(pipe_command)
        self.set_hdfs_config(fs_name, fs_ugi)
        self.set_download_cmd(download_cmd)
        self.update_settings(input_type=input_type, **more)

    def update_settings(self, **settings: Any) -> None:
        """Change settings by the names that `init` uses."""
        setters = self._setters()
        for name, value in settings.items():
            if name not in setters:
                raise ValueError(
                    f"{type(self).__name__} has no setting {name!r}; it has {', '.join(setters)}."
                )
            setters[name](value)

    def _setters(self) -> dict[str, Callable[[Any], None]]:
        return {
            "batch_size": self.set_batch_size,
            "thread_num": self.set_thread,
            "use_var": self.set_use_var,
            "pipe_command": self.set_pipe_command,
            "download_cmd": self.set_download_cmd,
            "input_type": self._set_input_type,
            "fs_name": lambda name: self.set_hdfs_config(name, ""),
            "fs_ugi": lambda ugi: self.set_hdfs_config("", ugi),
        }

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples in a batch."""
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size of a dataset must be at least 1, not {batch_size!r}.")
        self.batch_size = batch_size

    def set_thread(self, thread_num: int) -> None:
        """Set the number of files that are read concurrently."""
        if not isinstance(thread_num, int) or thread_num < 0:
            raise ValueError(f"thread_num of a dataset must not be negative, not {thread_num!r}.")
        self.thread_num = max(1, thread_num)

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files, read in this order."""
        self.filelist = [str(path) for path in filelist]

    def set_use_var(self, var_list: Sequence[Any]) -> None:
        """Set the variables to feed, in the order of the slots in a line."""
        slots = [slot_of(variable) for variable in var_list]
        MultiSlotFormat(slots)
        self._slots = slots

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that turns a file (its input) into multi-slot lines."""
        self.pipe_command = pipe_command

    def set_download_cmd(self, download_cmd: str) -> None:
        """Set the shell command that writes a remote file, given by name, to its output."""
        self.download_cmd = download_cmd

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Set the remote file system; reading from it needs `set_download_cmd`."""
        self.fs_name, self.fs_ugi = fs_name, fs_ugi

    def _set_input_type(self, input_type: int) -> None:
        if input_type not in (0, 1):
            raise ValueError(f"input_type of a dataset is 0 or 1, not {input_type!r}.")

    @property
    def slot_names(self) -> list[str]:
        """The names of the variables that batches feed."""
        return [slot.name for slot in self._slots]

    def desc(self) -> str:
        """Return the settings in the text form of Paddle's DataFeedDesc."""
        lines = [
            f'name: "{self.feed_type}"',
            f"batch_size: {self.batch_size}",
            "multi_slot_desc {",
        ]
        for slot in self._slots:
            kind = "float" if slot.dtype == VarType.FP32 else "uint64"
            lines += ["  slots {", f'    name: "{slot.name}"', f'    type: "{kind}"']
            lines += ["    is_dense: true"] if slot.lod_level == 0 else []
            lines += ["    is_used: true"]
            lines += [f"    shape: {dim}" for dim in slot.shape if slot.lod_level == 0]
            lines += ["  }"]
        return "\n".join([*lines, "}", f'pipe_command: "{self.pipe_command}"', ""])

    @property
    def dataset(self) -> DatasetBase:
        """The dataset itself; in Paddle the C++ object behind it, with some of its methods."""
        return self

    # -- data ------------------------------------------------------------------------------------
    def __iter__(self) -> Iterator[Feed]:
        return self.batches()

    def batches(self, drop_last: bool = False) -> Iterator[Feed]:
        """Return an iterator of prefetched feeds; the last may be smaller, or is dropped."""
        if not self._slots:
            raise RuntimeError("The dataset has no variables: call set_use_var() first.")
        groups = batch(self._instances, self.batch_size, drop_last)
        form = self._format()
        return BackgroundIterator(
            lambda: map(form.feed, groups()), BATCHES_AHEAD, name="fleetx-dataset"
        )

    def _instances(self) -> Iterator[Instance]:
        raise NotImplementedError

    def _format(self) -> MultiSlotFormat:
        return MultiSlotFormat(self._slots, int(self.parse_ins_id) + int(self.parse_content))

    def _file_chunks(self, path: str) -> Iterator[list[Instance]]:
        """Parse one file; errors name the line."""
        form, chunk = self._format(), []
        for number, line in enumerate(read_lines(path, self.pipe_command, self.download_cmd), 1):
            if line.isspace():
                continue
            try:
                chunk.append(form.parse(line))
            except ValueError as error:
                through = "" if self.pipe_command == "cat" else f" (after {self.pipe_command!r})"
                raise DataFormatError(f"File {path!r}, line {number}{through}: {error}.") from error
            if len(chunk) == _CHUNK:
                yield chunk
                chunk = []
        yield chunk
