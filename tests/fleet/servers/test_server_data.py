"""Data of jobs with servers: files split and shuffled between workers, AUC over all of them."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import run_job
from programs import fresh

from fleetx import fleet, static
from fleetx.fleet.servers.distributed_infer import DistributedInfer
from fleetx.static import layers
from fleetx.static.readers.file_datasets import InMemoryDataset, QueueDataset

FILES, LINES = 5, 20
GENERATOR = """
from fleetx.data.data_generator import MultiSlotDataGenerator
class Lines(MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            number = int(line)
            yield [("ids", [number, number + 1000][: 1 + number % 2]), ("x", [number / 100, 1.0]),
                   ("label", [int(number % 4 == 0)]), ("number", [number])]
        return samples
Lines().run_from_stdin()
"""


def _variables() -> list[Any]:
    return [
        static.layers.data("ids", [1], dtype="int64", lod_level=1),
        static.layers.data("x", [2]),
        static.layers.data("label", [1], dtype="int64"),
        static.layers.data("number", [1], dtype="int64"),
    ]


def _numbers(dataset: Any) -> list[int]:
    """Return the samples' numbers after checking that their slots have stayed together."""
    found = []
    for feed in dataset:
        numbers = np.array(feed["number"]).ravel().tolist()
        lengths = feed["ids"].recursive_sequence_lengths()[0]
        assert lengths == [1 + n % 2 for n in numbers]
        assert np.allclose(np.array(feed["x"])[:, 0], np.array(numbers) / 100)
        found += numbers
    return found


def _shuffles(dataset: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"files": dataset.filelist}
    for name in ("first", "again"):
        random.seed(3)
        dataset.preload_into_memory(2)
        dataset.wait_preload_done()
        found["before"] = _numbers(dataset)
        dataset.global_shuffle(fleet)
        found[name] = _numbers(dataset)
    found["sizes"] = (
        dataset.get_memory_data_size(),
        dataset.get_memory_data_size(fleet),
        dataset.get_shuffle_data_size(fleet),
    )
    dataset.global_shuffle(fleet.fleet, thread_num=2)
    found["second"] = _numbers(dataset)
    dataset.release_memory()
    found["released"] = dataset.get_memory_data_size(fleet)
    dataset.load_into_memory()
    return found


def _merged(folder: Path) -> list[list[int]]:
    """Join the lines of one id, which different workers have read."""
    dataset = InMemoryDataset()
    dataset.init(use_var=_variables()[2:], batch_size=1)
    dataset.set_merge_by_lineid(2)
    dataset.set_filelist([str(folder / f"merge{fleet.worker_index()}")])
    dataset.load_into_memory()
    dataset.global_shuffle(fleet)
    return [[int(np.array(feed[name])[0, 0]) for name in ("label", "number")] for feed in dataset]


def _network(variables: list[Any]) -> Any:
    ids, x, *_ = variables
    rows = layers.sequence_pool(layers.embedding(ids, [2000, 4], is_sparse=True), "sum")
    return layers.fc(layers.concat([x, rows], axis=1), 2, act="softmax")


def _inferred(executor: Any, feed: Any, predicted: Any) -> list[Any]:
    """Predict by the training program's copy, and by one that was built for inference."""
    known = fleet.main_program.clone(for_test=True)
    expected = executor.run(known, feed=feed, fetch_list=[predicted])
    program = static.Program()
    with static.program_guard(program, static.Program()), static.unique_name.guard():
        again = _network(_variables())
    infer = DistributedInfer(program, static.Program()).get_dist_infer_program()
    return [*expected, *executor.run(infer, feed=feed, fetch_list=[again.name])]


def _job(folder: Path) -> Any:
    fresh()
    fleet.init()
    variables = _variables()
    label = variables[2]
    predicted = _network(variables)
    loss = layers.mean(layers.cross_entropy(predicted, label))
    auc, _, states = layers.auc(predicted, label, num_thresholds=2**10)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    optimizer = static.optimizer.Adagrad(0.1)
    fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return None
    executor = static.Executor()
    executor.run(fleet.startup_program)
    fleet.init_worker()
    dataset = InMemoryDataset()
    dataset.init(
        use_var=variables,
        batch_size=4,
        thread_num=2,
        pipe_command=f"{sys.executable} {folder / 'generator.py'}",
        fleet_send_batch_size=7,
    )
    dataset.set_filelist(fleet.split_files([str(folder / f"part{i}") for i in range(FILES)]))
    found = _shuffles(dataset)
    found["merged"] = _merged(folder)
    for _ in range(3):
        executor.train_from_dataset(fleet.main_program, dataset, fetch_list=[loss, auc])
    stream = QueueDataset()
    stream.init(use_var=variables, batch_size=8, pipe_command=dataset.pipe_command)
    stream.set_filelist(dataset.filelist)
    executor.train_from_dataset(fleet.main_program, stream)
    positives, negatives = (
        np.array(static.global_scope().find_var(state.name).get_tensor()) for state in states[2:]
    )
    found["counts"] = (positives, negatives)
    found["auc"] = fleet.metrics.auc(states[2], states[3])
    total = np.zeros(1)
    fleet.all_reduce_worker(np.array([fleet.worker_index() + 1.0]), total)
    found["total"] = (total[0], float(fleet.util.all_reduce(2, "max")))
    fleet.barrier_worker()
    found["inferred"] = _inferred(executor, next(iter(stream)), predicted)
    fleet.stop_worker()
    return found


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("data")
    (folder / "generator.py").write_text(GENERATOR)
    for i in range(FILES):
        lines = [f"{number}\n" for number in range(i * LINES, (i + 1) * LINES)]
        (folder / f"part{i}").write_text("".join(lines))
    for i in range(2):
        slots = ["1 {} 1 0", "1 0 1 {}"][i]
        lines = [f"1 id{n} {slots.format(n + 1)}\n" for n in range(6)]
        (folder / f"merge{i}").write_text("".join(lines))
    return run_job(_job, 2, 2, folder)


@pytest.mark.slow
def test_a_global_shuffle_keeps_every_sample_once(workers: list[Any]) -> None:
    everything = list(range(FILES * LINES))
    assert [len(worker["files"]) for worker in workers] == [3, 2]
    for name in ("before", "first", "second"):
        assert sorted(workers[0][name] + workers[1][name]) == everything
    for worker in workers:
        assert worker["first"] == worker["again"] != worker["second"]
        assert worker["sizes"] == (50, 100, 100)
        assert worker["released"] == 0
        # Samples of both workers come to each, in no order.
        assert len(set(worker["first"]) & set(workers[0]["before"])) in range(15, 46)
        assert worker["first"] != sorted(worker["first"])


def test_lines_of_one_id_meet_at_one_worker(workers: list[Any]) -> None:
    found = [tuple(values) for worker in workers for values in worker["merged"]]
    assert Counter(found) == Counter((n, n) for n in range(1, 7))


def test_auc_is_that_of_all_workers(workers: list[Any]) -> None:
    positives = sum(worker["counts"][0] for worker in workers).ravel()
    negatives = sum(worker["counts"][1] for worker in workers).ravel()
    assert positives.sum() + negatives.sum() == 4 * FILES * LINES
    pairs = np.greater.outer(np.arange(len(positives)), np.arange(len(positives)))
    better = (positives[:, None] * negatives[None] * pairs).sum()
    equal = (positives * negatives).sum() / 2
    expected = (better + equal) / (positives.sum() * negatives.sum())
    for worker in workers:
        assert worker["auc"] == pytest.approx(expected)
        assert worker["total"] == (3.0, 2.0)


def test_inference_looks_rows_up_at_the_servers(workers: list[Any]) -> None:
    for worker in workers:
        expected, found = worker["inferred"]
        # What the other worker has queued may still be applied between the two.
        np.testing.assert_allclose(found, expected, atol=0.05)
        assert found.shape == (8, 2)
