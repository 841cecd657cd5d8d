"""Datasets of text files for `Executor.train_from_dataset`: QueueDataset and InMemoryDataset.

The files hold samples in the multi-slot format, or are turned into it by a pipe command.
A QueueDataset streams them, an InMemoryDataset holds them and can shuffle. Iterating a dataset
gives feeds, made ahead in a background thread; batches are the same for every number of threads.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any

from fleetx.static.dtypes import VarType
from fleetx.static.errors import DataFormatError
from fleetx.static.readers.background import BackgroundIterator
from fleetx.static.readers.batch import batch
from fleetx.static.readers.data_feeder import Feed, Slot, slot_of
from fleetx.static.readers.merge_lines import merge_by_id
from fleetx.static.readers.multi_slot import Instance, MultiSlotFormat, read_lines

_CHUNK = 256  # samples handed from a file's thread at once
_BATCHES_AHEAD = 4


class DatasetBase:
    """Settings that both datasets share, and how files become feeds."""

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
        """Set how many files are read at the same time."""
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
        """Accept where a remote file system is; reading from it needs `set_download_cmd`."""
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
        lines = [f'name: "{self.feed_type}"', f"batch_size: {self.batch_size}", "multi_slot_desc {"]
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
        """Give feeds, made ahead in the background; the last may be smaller or dropped."""
        if not self._slots:
            raise RuntimeError("The dataset has no variables: call set_use_var() first.")
        groups = batch(self._instances, self.batch_size, drop_last)
        form = self._format()
        return BackgroundIterator(
            lambda: map(form.feed, groups()), _BATCHES_AHEAD, name="fleetx-dataset"
        )

    def _instances(self) -> Iterator[Instance]:
        raise NotImplementedError

    def _format(self) -> MultiSlotFormat:
        return MultiSlotFormat(self._slots, int(self.parse_ins_id) + int(self.parse_content))

    def _file_chunks(self, path: str) -> Iterator[list[Instance]]:
        """Parse one file; an error says where in it."""
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


class QueueDataset(DatasetBase):
    """Streams the files; nothing is kept, so nothing can be shuffled."""

    def _instances(self) -> Iterator[Instance]:
        # Several files are read at once, but given in order.
        files = iter(self.filelist)
        running: deque[BackgroundIterator[list[Instance]]] = deque()

        def open_next() -> None:
            for path in files:
                chunks = partial(self._file_chunks, path)
                running.append(BackgroundIterator(chunks, _BATCHES_AHEAD, name="fleetx-file"))
                return

        for _ in range(self.thread_num):
            open_next()
        while running:
            for chunk in running.popleft():
                yield from chunk
            open_next()

    def local_shuffle(self) -> None:
        """Refuse: a stream cannot be shuffled."""
        raise NotImplementedError(
            "QueueDataset does not support local_shuffle; InMemoryDataset does."
        )

    def global_shuffle(self, fleet: Any = None) -> None:
        """Refuse: a stream cannot be shuffled."""
        raise NotImplementedError(
            "QueueDataset does not support global_shuffle; InMemoryDataset does."
        )


class FileInstantDataset(QueueDataset):
    """A QueueDataset under another of Paddle's names."""

    feed_type = "MultiSlotFileInstantDataFeed"


class InMemoryDataset(DatasetBase):
    """Holds all samples after `load_into_memory()`; can shuffle them."""

    feed_type = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self._memory: list[Instance] | None = None
        self._loading: Future[list[Instance]] | None = None
        self._shuffled = False
        self._merge_size: int | None = None

    def _setters(self) -> dict[str, Callable[[Any], None]]:
        return super()._setters() | {
            "queue_num": self.set_queue_num,
            "parse_ins_id": self.set_parse_ins_id,
            "parse_content": self.set_parse_content,
            "merge_size": self.set_merge_by_lineid,
            "fea_eval": lambda on: self.set_fea_eval(0, on),
            "candidate_size": self.set_fea_eval,
            "fleet_send_batch_size": self.set_fleet_send_batch_size,
            "fleet_send_sleep_seconds": self.set_fleet_send_sleep_seconds,
        }

    def _init_distributed_settings(self, **settings: Any) -> None:
        self.update_settings(**settings)

    def set_queue_num(self, queue_num: int) -> None:
        """Accept the number of queues between reading and training; here it is always one."""
        self.queue_num = queue_num

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Set whether every line begins with an instance id, "1 <id>"."""
        self.parse_ins_id = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Set whether a text, "1 <text>", comes before the slots."""
        self.parse_content = parse_content

    def set_merge_by_lineid(self, merge_size: int = 2) -> None:
        """Let a global shuffle join the lines of one id, `merge_size` each; turns on ids."""
        self._merge_size, self.parse_ins_id = merge_size, True

    def set_generate_unique_feasigns(self, generate_uni_feasigns: bool, shard_num: int) -> None:
        """Accept how the features of a pass are collected for a parameter server."""

    def generate_local_tables_unlock(
        self,
        table_id: int,
        fea_dim: int,
        read_thread_num: int,
        consume_thread_num: int,
        shard_num: int,
    ) -> None:
        """Accept the call that fills a parameter server's tables; without a server none exist."""

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Set how many samples a global shuffle sends at once."""
        self.fleet_send_batch_size = fleet_send_batch_size

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Accept how long a global shuffle pauses between sending."""
        self.fleet_send_sleep_seconds = fleet_send_sleep_seconds

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Accept the switch for `slots_shuffle`, which needs none here."""
        self.fea_eval, self.record_candidate_size = fea_eval, record_candidate_size

    def load_into_memory(self, is_shuffle: bool = False) -> None:
        """Read all files, `thread_num` at a time, in the order of the list."""
        self._memory = self._load(self.thread_num)
        self._shuffled = False
        if is_shuffle:
            self.local_shuffle()

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Begin to read all files in the background; `wait_preload_done()` ends that."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="fleetx-preload")
        self._loading = pool.submit(self._load, thread_num or self.thread_num)
        pool.shutdown(wait=False)

    def wait_preload_done(self) -> None:
        """Wait for `preload_into_memory()`; the new samples replace the old."""
        if self._loading is None:
            raise RuntimeError("wait_preload_done() comes after preload_into_memory().")
        loading, self._loading = self._loading, None
        self._memory, self._shuffled = loading.result(), False

    def _load(self, threads: int) -> list[Instance]:
        with ThreadPoolExecutor(threads, thread_name_prefix="fleetx-load") as pool:
            files = pool.map(lambda path: list(chain(*self._file_chunks(path))), self.filelist)
            return list(chain.from_iterable(files))

    def local_shuffle(self) -> None:
        """Put this worker's samples in random order (Python's `random` seed)."""
        random.shuffle(self._loaded())
        self._shuffled = True

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle the samples of all workers; with one worker that is a local shuffle."""
        _check_one_worker(fleet, "global_shuffle")
        self.local_shuffle()
        if self._merge_size is not None:
            self.merge_by_lineid()

    def merge_by_lineid(self) -> None:
        """Join the lines of each id; see `merge_by_id`."""
        self._memory = merge_by_id(self._loaded(), self._slots, self._merge_size or 0)

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Shuffle the values of some slots among the samples, to see what a slot contributes."""
        memory = self._loaded()
        for name in slots:
            index = self.slot_names.index(name)
            values = [instance[index] for instance in memory]
            random.shuffle(values)
            for instance, value in zip(memory, values, strict=True):
                instance[index] = value

    def release_memory(self) -> None:
        """Drop all samples."""
        self._memory, self._shuffled = None, False

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Return how many samples are in memory."""
        _check_one_worker(fleet, "get_memory_data_size")
        return len(self._memory or ())

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """Return how many samples have been shuffled."""
        _check_one_worker(fleet, "get_shuffle_data_size")
        return len(self._memory or ()) if self._shuffled else 0

    def _loaded(self) -> list[Instance]:
        if self._memory is None:
            raise RuntimeError("The InMemoryDataset is empty: call load_into_memory() first.")
        return self._memory

    def _instances(self) -> Iterator[Instance]:
        return iter(self._loaded())

    def batches(self, drop_last: bool = False) -> Iterator[Feed]:
        """Give feeds; see `DatasetBase.batches`."""
        self._loaded()
        return super().batches(drop_last)


class DatasetFactory:
    """Makes datasets by name."""

    _KINDS = (InMemoryDataset, QueueDataset, FileInstantDataset)

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> Any:
        """Return a new QueueDataset or InMemoryDataset."""
        for kind in self._KINDS:
            if kind.__name__ == datafeed_class:
                return kind()
        raise ValueError(
            f"datafeed class {datafeed_class!r} does not exist; use "
            f"{', '.join(kind.__name__ for kind in self._KINDS)}."
        )


def _check_one_worker(fleet: Any, what: str) -> None:
    if fleet is not None and fleet.worker_num() > 1:
        raise NotImplementedError(f"{what}() with several workers is not available yet.")
