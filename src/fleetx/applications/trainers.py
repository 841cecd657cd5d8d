"""Training loops for static models: fit, validate, benchmark.

`MultiGPUTrainer` is for collective jobs (on GPUs, or on CPUs if there are none), `CPUTrainer` and
`CPUDatasetTrainer` for jobs with parameter servers. Their output has Fleet's format.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fleetx import fleet
from fleetx.runtime.environment import selected_device
from fleetx.static.graph.default_programs import default_startup_program
from fleetx.static.graph.program import Program
from fleetx.static.run.executor import Executor
from fleetx.static.run.place import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda

_STEP = "step%d, train_loss: %f, total time cost = %f, step per second: %f, speed: %f"


class _Timed(NamedTuple):
    """A step of an epoch after the warm-up steps."""

    step: int
    fetched: list[Any]
    total: float
    """Seconds of all counted steps."""
    seconds: float
    """Seconds of this step, including the wait for its data."""


class Trainer:
    """The common part of trainers: an executor and a timed loop."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.exe = Executor(place)

    def _timed(
        self, model: Any, dataloader: Any, fetches: list[Any], start_step: int
    ) -> Iterator[_Timed]:
        """Run an epoch; yield every step after ``start_step``, where timing starts."""
        total, begin = 0.0, 0.0
        for step, batch in enumerate(_batches(dataloader)):
            fetched = self.exe.run(
                model.main_prog, feed=batch, fetch_list=fetches, use_program_cache=True
            )
            now = time.perf_counter()
            if step > start_step:
                total += now - begin
                yield _Timed(step, fetched, total, now - begin)
            begin = time.perf_counter()

    def _fit(self, model: Any, dataloader: Any, start_step: int, head: str) -> None:
        for timed in self._timed(model, dataloader, [model.loss.name], start_step):
            loss = float(np.asarray(timed.fetched[0]).reshape(-1)[0])
            rate = (timed.step - start_step) / timed.total
            text = _STEP % (timed.step, loss, timed.total, rate, 1 / timed.seconds)
            print(head + text, flush=True)


def _place_of_worker() -> Place:
    return CUDAPlace(selected_device()) if is_compiled_with_cuda() else CPUPlace()


class MultiGPUTrainer(Trainer):
    """Trainer of a model whose loss an optimizer of Fleet has minimised, for collective training.

    Creating one runs the startup program.
    """

    def __init__(self) -> None:
        super().__init__(_place_of_worker())
        self.exe.run(default_startup_program())
        self._test_programs: dict[Any, Program] = {}

    def fit(
        self, model: Any, dataloader: Any, epoch: int, use_dali: bool = False, start_step: int = 10
    ) -> None:
        """Train for ``epoch`` epochs; print every step after ``start_step`` of each."""
        for epoch_id in range(epoch):
            self._fit(model, dataloader, start_step, f"epoch id: {epoch_id}, ")
            _end_pass(dataloader, use_dali)

    def val(
        self,
        model: Any,
        dataloader: Any,
        target_list: Sequence[str],
        current_epoch: int = -1,
        use_dali: bool = False,
    ) -> dict[str, float]:
        """Print and return the means of targets such as "acc1" over this worker's data."""
        results, rows = self._evaluate(model, dataloader, target_list)
        _end_pass(dataloader, use_dali)
        means = {name: float(np.average(found, weights=rows)) for name, found in results.items()}
        text = "".join(f", {name} = {value}" for name, value in means.items())
        head = f"Test Epoch {current_epoch}" if current_epoch > 0 else "Test Result "
        print(head + text, flush=True)
        return means

    def quick_benchmark(
        self, model: Any, dataloader: Any, start_step: int = 20, end_step: int = 200
    ) -> float:
        """Return the steps per second between two steps of one pass; nothing is fetched."""
        if not 0 <= start_step < end_step:
            raise ValueError(
                f"start_step must be below end_step, but they are {start_step} and {end_step}."
            )
        for timed in self._timed(model, dataloader, [], start_step):
            if timed.step == end_step:
                return (end_step - start_step) / timed.total
        raise ValueError(f"The loader ended before step {end_step}: use a smaller end_step.")

    def benchmark(
        self, model: Any, dataloader: Any, epoch: int, use_dali: bool = False, start_step: int = 20
    ) -> float:
        """Train for ``epoch`` epochs; return the steps per second of the last one.

        At most 100 steps after ``start_step`` are timed.
        """
        speed = None
        for _ in range(epoch):
            for timed in self._timed(model, dataloader, [model.loss.name], start_step):
                if timed.step <= start_step + 100:
                    speed = (timed.step - start_step) / timed.total
            _end_pass(dataloader, use_dali)
        if speed is None:
            raise ValueError(
                f"No step was timed in {epoch} epochs: an epoch must have more than "
                f"{start_step + 1} steps, or start_step must be smaller."
            )
        return speed

    def benchmark_val(
        self, model: Any, dataloader: Any, target_list: Sequence[str], use_dali: bool = False
    ) -> dict[str, list[float]]:
        """Return the values of targets for every batch of this worker's data."""
        results, _ = self._evaluate(model, dataloader, target_list)
        _end_pass(dataloader, use_dali)
        return results

    def _evaluate(
        self, model: Any, dataloader: Any, target_list: Sequence[str]
    ) -> tuple[dict[str, list[float]], list[int]]:
        """Return the targets of every batch, and the number of samples of each."""
        unknown = [name for name in target_list if name not in model.target.keys()]  # noqa: SIM118
        if unknown or not target_list:
            raise ValueError(
                f"target_list must hold some of {list(model.target.keys())}, but is "
                f"{list(target_list)}."
            )
        if model not in self._test_programs:
            self._test_programs[model] = model.main_prog.clone(for_test=True)
        fetches = [model.target[name].name for name in target_list]
        results: dict[str, list[float]] = {name: [] for name in target_list}
        rows = []
        for batch in _batches(dataloader):
            values = self.exe.run(
                self._test_programs[model], feed=batch, fetch_list=fetches, use_program_cache=True
            )
            for name, value in zip(target_list, values, strict=True):
                results[name].append(float(np.mean(value)))
            rows.append(_rows(batch))
        if not rows:
            raise ValueError("The loader yielded no batch to evaluate.")
        return results, rows


class CPUTrainer(Trainer):
    """Trainer on CPUs with parameter servers: connects, fits, disconnects."""

    def __init__(self, calc_line: bool = True) -> None:
        super().__init__(CPUPlace())
        self.calc_line = calc_line

    def fit(self, model: Any, dataloader: Any, epoch: int, start_step: int = 10) -> None:
        """Train for ``epoch`` epochs; print every step after ``start_step`` of each."""
        self.exe.run(default_startup_program())
        fleet.init_worker()
        head = f"worker_index: {fleet.worker_index()}, "
        for _ in range(epoch):
            self._fit(model, dataloader, start_step, head)
        fleet.stop_worker()

    def get_total_lines(self, file_list: Iterable[str]) -> int:
        """Count the lines of files, and print the count of each."""
        return _count(file_list, "line", "lines", lambda line: 1)

    def get_total_words(self, file_list: Iterable[str]) -> int:
        """Count the words of files, and print the count of each."""
        return _count(file_list, "words", "words", lambda line: len(line.split()))


class CPUDatasetTrainer(CPUTrainer):
    """Trainer on CPUs from the files of a dataset; `calc_line` counts lines instead of words."""

    def fit(self, model: Any, dataset: Any, epoch: int) -> None:  # type: ignore[override]
        """Train for ``epoch`` passes over the files; print the speed of each."""
        self.exe.run(default_startup_program())
        fleet.init_worker()
        count = self.get_total_lines if self.calc_line else self.get_total_words
        total = count(dataset.filelist)
        for epoch_id in range(epoch):
            begin = time.perf_counter()
            self.exe.train_from_dataset(
                program=model.main_prog,
                dataset=dataset,
                fetch_list=[model.loss],
                fetch_info=[model.loss.name],
                print_period=1000,
            )
            speed = total / (time.perf_counter() - begin)
            print(f"epoch: {epoch_id} finished, speed: {speed:f} words/s", flush=True)
        fleet.stop_worker()


def _batches(dataloader: Any) -> Iterable[Any]:
    """Return one pass over a loader: Paddle's loaders are called, others are iterated."""
    return dataloader() if callable(dataloader) else dataloader


def _end_pass(dataloader: Any, use_dali: bool) -> None:
    # A DALI iterator starts its next pass only after a reset.
    if use_dali:
        dataloader.reset()


def _rows(batch: Any) -> int:
    """Return the number of samples of a feed: one dictionary, or one per device."""
    feeds = batch if isinstance(batch, list | tuple) else [batch]
    values = [next(iter(feed.values())) for feed in feeds]
    shapes = [value.shape() if callable(value.shape) else value.shape for value in values]
    return sum(int(shape[0]) for shape in shapes)


def _count(file_list: Iterable[str], unit: str, units: str, amount: Callable[[bytes], int]) -> int:
    total = 0
    for path in file_list:
        with open(path, "rb") as stream:
            found = sum(map(amount, stream))
        print(f"file: {path} has {found} {unit}")
        total += found
    print(f"Total {units}: {total}", flush=True)
    return total
