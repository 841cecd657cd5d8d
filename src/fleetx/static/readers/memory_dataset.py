"""InMemoryDataset: holds all samples and shuffles them, locally or across workers.

A global shuffle distributes every worker's shuffled samples round-robin to all workers, and each
shuffles what it received: no sample is lost or duplicated, and shares differ by at most one.
The order comes from Python's `random` on each worker: equal seeds give equal results.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from types import ModuleType
from typing import Any, Protocol

from fleetx.static.readers.data_feeder import Feed
from fleetx.static.readers.dataset_base import DatasetBase
from fleetx.static.readers.merge_lines import merge_by_id
from fleetx.static.readers.multi_slot import Instance
from fleetx.static.readers.parcels import pack, unpack


class _Workers(Protocol):
    """The methods of a role maker that a shuffle needs."""

    def worker_index(self) -> int: ...
    def worker_num(self) -> int: ...
    def all_gather(self, value: Any) -> Any: ...
    def all_reduce(self, value: Any, mode: str = "sum") -> Any: ...
    def exchange(self, parcels: list[Any]) -> list[Any]: ...


def _workers_of(fleet: Any) -> _Workers | None:
    """Return the workers of a session (or of the module `fleet`), None for a single worker."""
    if fleet is None or fleet.worker_num() == 1:
        return None
    found: _Workers = (fleet.fleet if isinstance(fleet, ModuleType) else fleet).role_maker
    return found


def _total(count: int, fleet: Any) -> int:
    workers = _workers_of(fleet)
    return count if workers is None else int(workers.all_reduce(count))


class InMemoryDataset(DatasetBase):
    """Holds all samples after `load_into_memory()`; can shuffle them."""

    feed_type = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self._memory: list[Instance] | None = None
        self._loading: Future[list[Instance]] | None = None
        self._shuffled = False
        self._merge_size: int | None = None
        self.fleet_send_batch_size = 1024

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
        """Set the number of queues between reading and training; without effect."""
        self.queue_num = queue_num

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Set whether every line begins with an instance id, "1 <id>"."""
        self.parse_ins_id = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Set whether a text, "1 <text>", comes before the slots."""
        self.parse_content = parse_content

    def _set_trainer_num(self, trainer_num: int) -> None:
        """Accept the number of workers, which a global shuffle takes from the job."""
        self.trainer_num = trainer_num

    def set_merge_by_lineid(self, merge_size: int = 2) -> None:
        """Merge lines of the same id, `merge_size` each, in a global shuffle; enables ids."""
        self._merge_size, self.parse_ins_id = merge_size, True

    def set_generate_unique_feasigns(self, generate_uni_feasigns: bool, shard_num: int) -> None:
        """Accept the settings of feature collection for parameter servers; without effect."""

    def generate_local_tables_unlock(
        self,
        table_id: int,
        fea_dim: int,
        read_thread_num: int,
        consume_thread_num: int,
        shard_num: int,
    ) -> None:
        """Accept the call that fills a parameter server's tables; without effect."""

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Set the number of samples that a global shuffle sends to each worker at once."""
        if not isinstance(fleet_send_batch_size, int) or fleet_send_batch_size < 1:
            raise ValueError(
                f"fleet_send_batch_size must be at least 1, not {fleet_send_batch_size!r}."
            )
        self.fleet_send_batch_size = fleet_send_batch_size

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Set the pause of a global shuffle between sends; without effect."""
        self.fleet_send_sleep_seconds = fleet_send_sleep_seconds

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Enable `slots_shuffle`; without effect, it is always available."""
        self.fea_eval, self.record_candidate_size = fea_eval, record_candidate_size

    def load_into_memory(self, is_shuffle: bool = False) -> None:
        """Read all files, `thread_num` at a time, in the order of the list."""
        self._memory = self._load(self.thread_num)
        self._shuffled = False
        if is_shuffle:
            self.local_shuffle()

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Start to read all files in the background; `wait_preload_done()` waits for the end."""
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
        """Shuffle this worker's samples with Python's `random`."""
        random.shuffle(self._loaded())
        self._shuffled = True

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle the samples across workers; all workers must call it. See the module's docstring.

        Without `fleet`, or with one worker, this is a local shuffle. Lines to be merged
        (`set_merge_by_lineid`) are sent to a worker by their id.
        """
        self.local_shuffle()
        workers = _workers_of(fleet)
        if workers is not None:
            self._memory = self._exchanged(workers)
            self.local_shuffle()
        if self._merge_size is not None:
            self.merge_by_lineid()

    def _exchanged(self, workers: _Workers) -> list[Instance]:
        """Exchange samples in chunks; return those that all workers sent to this one."""
        count, memory = workers.worker_num(), self._loaded()
        if self._merge_size is not None:
            goals = [zlib.crc32(each.ins_id.encode()) % count for each in memory]
            piles = [
                [s for s, g in zip(memory, goals, strict=True) if g == j] for j in range(count)
            ]
        else:
            sizes = workers.all_gather(len(memory))
            first = sum(sizes[: workers.worker_index()]) % count
            piles = [memory[(j - first) % count :: count] for j in range(count)]
        memory.clear()
        found: list[Instance] = []
        rounds = -(-max(map(len, piles)) // self.fleet_send_batch_size)
        for _ in range(int(workers.all_reduce(rounds, "max"))):
            parcels = []
            for pile in piles:
                parcels.append(pack(pile[-self.fleet_send_batch_size :], self._slots))
                del pile[-self.fleet_send_batch_size :]
            for parcel in workers.exchange(parcels):
                found += unpack(parcel, self._slots)
        return found

    def merge_by_lineid(self) -> None:
        """Join the lines of each id; see `merge_by_id`."""
        self._memory = merge_by_id(self._loaded(), self._slots, self._merge_size or 0)

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Permute the values of slots across samples, to measure what a slot contributes."""
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
        """Return the number of samples in memory; with `fleet`, of all workers."""
        return _total(len(self._memory or ()), fleet)

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """Return the number of shuffled samples; with `fleet`, of all workers."""
        return _total(len(self._memory or ()) if self._shuffled else 0, fleet)

    def _loaded(self) -> list[Instance]:
        if self._memory is None:
            raise RuntimeError("The InMemoryDataset is empty: call load_into_memory() first.")
        return self._memory

    def _instances(self) -> Iterator[Instance]:
        return iter(self._loaded())

    def batches(self, drop_last: bool = False) -> Iterator[Feed]:
        """Return an iterator of feeds; see `DatasetBase.batches`."""
        self._loaded()
        return super().batches(drop_last)

    # Paddle 2.0's names, which scripts use.
    _set_queue_num = set_queue_num
    _set_parse_ins_id = set_parse_ins_id
    _set_parse_content = set_parse_content
    _set_merge_by_lineid = set_merge_by_lineid
    _set_generate_unique_feasigns = set_generate_unique_feasigns
    _generate_local_tables_unlock = generate_local_tables_unlock
    _set_fleet_send_batch_size = set_fleet_send_batch_size
    _set_fleet_send_sleep_seconds = set_fleet_send_sleep_seconds
