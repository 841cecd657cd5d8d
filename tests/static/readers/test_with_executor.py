"""Readers and loaders with real programs: passes, errors and sequences through Executor.run."""

import numpy as np
import pytest

from fleetx.static import (
    CompiledProgram,
    CPUPlace,
    EOFException,
    Executor,
    Program,
    Scope,
    layers,
    program_guard,
    scope_guard,
)
from fleetx.static.layers.io import static_data
from fleetx.static.optimizer.sgd import SGDOptimizer
from fleetx.static.readers.batch import batch
from fleetx.static.readers.data_feeder import DataFeeder
from fleetx.static.readers.decorator import shuffle
from fleetx.static.readers.file_datasets import InMemoryDataset
from fleetx.static.readers.generator_loader import PyReader
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.lod_tensor import create_lod_tensor
from fleetx.static.readers.multiprocess import multiprocess_reader
from fleetx.static.readers.py_reader import py_reader, read_file

WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5])


def samples(n=64):
    def reader():
        rng = np.random.RandomState(0)
        for x in rng.uniform(-1, 1, (n, 4)):
            yield x, [x @ WEIGHTS]

    return reader


@pytest.fixture
def programs():
    main, startup = Program(), Program()
    with scope_guard(Scope()), program_guard(main, startup):
        yield main, startup


def regression(x, y):
    loss = layers.mean(layers.square_error_cost(layers.fc(x, 1), y))
    SGDOptimizer(0.2).minimize(loss)
    return loss


def inputs():
    return layers.data("x", [4]), layers.data("y", [1])


def train_passes(exe, program, reader, loss, passes=8):
    losses = []
    for _ in range(passes):
        reader.start()
        steps = 0
        try:
            while True:
                losses.append(float(exe.run(program, fetch_list=[loss])[0].item()))
                steps += 1
        except EOFException:
            reader.reset()
        assert steps == 8
    return losses


def test_py_reader_trains(programs):
    main, startup = programs
    reader = py_reader(4, [(-1, 4), (-1, 1)], ["float32", "float32"])
    loss = regression(*read_file(reader))
    reader.decorate_paddle_reader(shuffle(batch(samples(), 8), 100))
    exe = Executor(CPUPlace())
    exe.run(startup)
    losses = train_passes(exe, main, reader, loss)
    assert losses[-1] < 0.01 * losses[0]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loader_of_the_program_and_an_iterable_one_train_alike(compiled):
    results = []
    for iterable in (False, True):
        main, startup = Program(), Program()
        startup.random_seed = main.random_seed = 1
        with scope_guard(Scope()), program_guard(main, startup):
            x, y = inputs()
            loader = PyReader([x, y], capacity=4, iterable=iterable)
            loss = regression(x, y)
            places = CPUPlace() if iterable else None
            loader.decorate_sample_list_generator(batch(samples(), 8), places)
            exe = Executor(CPUPlace())
            exe.run(startup)
            program = CompiledProgram(main) if compiled else main
            if iterable:
                results.append(
                    [
                        exe.run(program, feed=feed, fetch_list=[loss])[0].item()
                        for _ in range(8)
                        for feed in loader()
                    ]
                )
            else:
                results.append(train_passes(exe, program, loader, loss))
    np.testing.assert_allclose(results[0], results[1])
    assert results[0][-1] < 0.01 * results[0][0]


def test_a_data_parallel_program_reads_a_batch_per_place(programs):
    main, startup = programs
    x, y = inputs()
    loader = PyReader([x, y], capacity=4, iterable=False)
    loader.decorate_sample_list_generator(batch(samples(40), 8))
    exe = Executor(CPUPlace())
    exe.run(startup)
    parallel = CompiledProgram(main).with_data_parallel(places=[CPUPlace()] * 2)
    loader.start()
    for _ in range(2):
        assert exe.run(parallel, fetch_list=[x])[0].shape == (16, 4)
    with pytest.raises(EOFException):  # one batch is left: too few for two places
        exe.run(parallel, fetch_list=[x])
    loader.reset()


@pytest.mark.parametrize("iterable", [True, False])
def test_an_error_in_the_generator_reaches_the_training_loop(programs, iterable):
    main, startup = programs
    x, y = inputs()
    loader = DataLoader.from_generator([x, y], capacity=2, iterable=iterable)
    loss = regression(x, y)
    error = OSError("the disk is gone")

    def broken():
        yield next(iter(batch(samples(), 8)()))
        raise error

    loader.set_sample_list_generator(broken, CPUPlace() if iterable else None)
    exe = Executor(CPUPlace())
    exe.run(startup)

    def run():
        if iterable:
            for feed in loader:
                exe.run(main, feed=feed, fetch_list=[loss])
        else:
            loader.start()
            while True:
                exe.run(main, fetch_list=[loss])

    with pytest.raises(OSError, match="disk is gone") as info:
        run()
    assert info.value is error
    assert info.traceback[-1].name == "broken"


def test_running_without_start_names_the_reader(programs):
    main, startup = programs
    reader = py_reader(4, [(-1, 4), (-1, 1)], ["float32", "float32"], name="train")
    loss = regression(*read_file(reader))
    exe = Executor(CPUPlace())
    exe.run(startup)
    with pytest.raises(RuntimeError, match="'train_double_buffer' is not started"):
        exe.run(main, fetch_list=[loss])


def test_multiprocess_reader_feeds_a_program(programs):
    _, startup = programs
    image = layers.data("image", [2], dtype="int64")
    doubled = layers.scale(image, 2.0)
    loader = DataLoader.from_generator([image], capacity=2)

    def part(start):
        return lambda: ((np.array([i, i]),) for i in range(start, start + 4))

    loader.set_sample_generator(
        multiprocess_reader([part(0), part(10)]), batch_size=2, places=[CPUPlace()]
    )
    exe = Executor(CPUPlace())
    exe.run(startup)
    got = [exe.run(feed=feed, fetch_list=[doubled])[0][:, 0].tolist() for feed in loader]
    assert got == [[0, 20], [2, 22], [4, 24], [6, 26]]


def text_network():
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    label = layers.data("label", [1], dtype="int64")
    pooled = layers.sequence_pool(layers.embedding(words, [20, 8]), "sum")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(pooled, 2), label))
    SGDOptimizer(0.5).minimize(loss)
    return words, label, pooled, loss


def texts():
    rng = np.random.RandomState(0)
    for i in range(32):
        yield (rng.randint(0, 10, 1 + i % 4) + 10 * (i % 2)).tolist(), i % 2


def test_sequences_through_feeder_loader_and_places(programs):
    main, startup = programs
    words, label, pooled, loss = text_network()
    exe = Executor(CPUPlace())
    exe.run(startup)
    feeder = DataFeeder([words, label], CPUPlace())
    feed = feeder.feed(list(texts())[:5])
    result, first = exe.run(main.clone(for_test=True), feed=feed, fetch_list=[pooled, loss])
    assert result.shape == (5, 8)

    loader = DataLoader.from_generator([words, label], capacity=2)
    loader.set_sample_generator(texts, 8, places=[CPUPlace()])
    for _ in range(20):
        for feed in loader:
            (last,) = exe.run(main, feed=feed, fetch_list=[loss])
    assert last.item() < 0.1 * first.item()

    # Batches for two places are one batch with all their sequences.
    whole = exe.run(main.clone(True), feeder.feed(list(texts())[:16]), [pooled])[0]
    loader.set_sample_generator(texts, 8, places=[CPUPlace()] * 2)
    merged = exe.run(main.clone(True), next(iter(loader)), [pooled])[0]
    np.testing.assert_allclose(merged, whole, rtol=1e-6)


def test_fetching_tensors_keeps_sequences(programs):
    _, startup = programs
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    rows = layers.embedding(words, [20, 8])
    exe = Executor(CPUPlace())
    exe.run(startup)
    feed = DataFeeder([words]).feed([([1, 2],), ([3],)])
    (tensor,) = exe.run(feed=feed, fetch_list=[rows], return_numpy=False)
    assert tensor.shape() == [3, 8]
    assert tensor.recursive_sequence_lengths() == [[2, 1]]


def test_train_from_dataset(programs, tmp_path, capsys):
    main, startup = programs
    words, label, _, loss = text_network()
    lines = [f"{len(ids)} {' '.join(map(str, ids))} 1 {y}\n" for ids, y in texts()]
    (tmp_path / "part").write_text("".join(lines))
    dataset = InMemoryDataset()
    dataset.init(batch_size=8, thread_num=2, use_var=[words, label])
    dataset.set_filelist([str(tmp_path / "part")])
    dataset.load_into_memory()
    exe = Executor(CPUPlace())
    exe.run(startup)
    for _ in range(20):
        dataset.local_shuffle()
        exe.train_from_dataset(main, dataset, fetch_list=[loss], print_period=4)
    printed = capsys.readouterr().out
    assert loss.name in printed
    feed = DataFeeder([words, label]).feed(list(texts()))
    assert exe.run(main.clone(True), feed, [loss])[0].item() < 0.1
    exe.infer_from_dataset(main, dataset, fetch_list=[loss], fetch_info=["test loss"])
    assert "test loss" in capsys.readouterr().out


def test_each_place_gets_a_batch_of_the_declared_size(programs):
    main, _ = programs
    x = static_data("x", [2, 3])
    y = layers.scale(x, 2.0)
    parallel = CompiledProgram(main).with_data_parallel(places=[CPUPlace()] * 3)
    batch_of_two = np.ones((2, 3), "float32")
    exe = Executor()
    fed = exe.run(parallel, feed=[{"x": batch_of_two * i} for i in range(3)], fetch_list=[y])[0]
    assert fed[:, 0].tolist() == [0, 0, 2, 2, 4, 4]
    assert (
        exe.run(parallel, feed={"x": np.ones((6, 3), "float32")}, fetch_list=[y])[0].shape[0] == 6
    )
    with pytest.raises(ValueError, match=r"shape \(2, 3\), but has shape \[3, 3\] on each"):
        exe.run(parallel, feed={"x": np.ones((9, 3), "float32")}, fetch_list=[y])
    # Rows of sequences are as many as they are.
    sequences = create_lod_tensor(np.ones((5, 3), "float32"), [[2, 3]], CPUPlace())
    assert exe.run(feed={"x": sequences}, fetch_list=[y], return_numpy=False)[0].shape() == [5, 3]
