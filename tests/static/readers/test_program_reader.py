"""py_reader and generator loaders: passes, reading ahead, ends, and errors."""

import gc
import threading

import numpy as np
import pytest

from fleetx.static import layers
from fleetx.static.errors import EOFException
from fleetx.static.graph.default_programs import default_startup_program
from fleetx.static.layers.io import static_data
from fleetx.static.readers.batch import batch
from fleetx.static.readers.generator_loader import DataLoaderBase, PyReader
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.lod_tensor import LoDTensor, LoDTensorArray, create_lod_tensor
from fleetx.static.readers.py_reader import (
    create_py_reader_by_data,
    double_buffer,
    py_reader,
    read_file,
)
from fleetx.static.run.place import CPUPlace
from waiting import LIMIT


def samples(n=10):
    def reader():
        for i in range(n):
            yield np.full([2], i, "float64"), i

    return reader


def batches(n=5, rows=3):
    def reader():
        for i in range(n):
            yield np.full((rows, 2), i, "float32"), np.full((rows, 1), i, "int64")

    return reader


def one_pass(port):
    got = []
    while True:
        try:
            got.append(port.next_feed())
        except EOFException:
            return got


def reader_threads():
    return [t for t in threading.enumerate() if t.name.startswith("fleetx")]


def assert_no_reader_threads():
    for thread in reader_threads():
        thread.join(timeout=LIMIT)
    assert reader_threads() == []


def op_types(program):
    return [op.type for op in program.global_block().ops]


def test_reader_ops_show_in_the_programs(program):
    startup = default_startup_program()
    x, _ = read_file(py_reader(4, [(-1, 2), (-1, 1)], ["float32", "int64"], name="train"))
    y = layers.fc(x, 3)
    assert op_types(program)[:2] == ["create_double_buffer_reader", "read"]
    assert op_types(startup)[-1] == "create_py_reader"
    create = startup.global_block().ops[-1]
    assert create.input("blocking_queue") == ["train_queue"]
    assert create.attr("shape_concat") == [-1, 2, -1, 1]
    assert create.attr("dtypes") == [5, 3]

    assert len(program._inference_optimize(prune_read_op=False).binding.readers) == 1
    without = program._inference_optimize()
    assert op_types(without) == op_types(program)[2:]
    assert without.binding.readers == []
    assert not any("reader" in v.name or "buffer" in v.name for v in without.list_vars())
    # Pruning keeps the reader where its data is needed.
    assert op_types(program._prune([y])) == op_types(program)
    fed = program._prune_with_input([x.name], [y])
    assert op_types(fed) == op_types(program)[2:]
    assert fed.binding.readers == []


@pytest.mark.parametrize("use_double_buffer", [False, True])
def test_ops_of_a_loader_that_belongs_to_a_program(program, use_double_buffer):
    x = static_data("x", [None, 2])
    DataLoader.from_generator([x], 4, use_double_buffer, iterable=False)
    buffer = ["create_double_buffer_reader"] * use_double_buffer
    assert op_types(program) == ["create_py_reader", *buffer, "read"]
    assert program.global_block().ops[0].attr("need_check_feed") == [1]
    assert program.global_block().ops[-1].output("Out") == ["x"]


def test_double_buffer_is_a_reader_over_another(program):
    reader = py_reader(4, [(-1, 2)], ["float32"], use_double_buffer=False)
    read_file(double_buffer(reader))
    assert op_types(program) == ["create_double_buffer_reader", "read"]
    buffer, read = program.global_block().ops
    assert buffer.output("Out") == read.input("Reader")


def test_py_reader_passes(program):
    reader = py_reader(4, [(-1, 2), (-1, 1)], ["float32", "int64"], name="train")
    x, y = read_file(reader)
    assert (x.name, y.name) == ("read_file_0.tmp_0", "read_file_0.tmp_1")
    assert (x.shape, x.stop_gradient) == ((-1, 2), True)
    (port,) = program.binding.readers
    assert port.output_names == [x.name, y.name]
    assert program.clone().binding.readers == [port]

    with pytest.raises(RuntimeError, match="'train_double_buffer' has no data source"):
        reader.start()
    reader.decorate_paddle_reader(batch(samples(10), 4))
    with pytest.raises(RuntimeError, match="'train_double_buffer' is not started"):
        port.next_feed()
    for _ in range(2):
        reader.start()
        feeds = one_pass(port)
        assert [feed[x.name].shape() for feed in feeds] == [[4, 2], [4, 2], [2, 2]]
        assert np.array(feeds[1][y.name]).tolist() == [[4], [5], [6], [7]]
        with pytest.raises(EOFException, match="'train_double_buffer' is at its end"):
            port.next_feed()
        reader.reset()
    assert_no_reader_threads()


def test_py_reader_of_variables_and_of_single_output(variable, program):
    reader = create_py_reader_by_data(2, [variable("w", [-1, 1], "int64", lod_level=1)])
    assert reader.name == "double_buffer_0"
    w = read_file(reader)
    assert w.lod_level == 1
    reader.decorate_sample_list_generator(lambda: iter([[([1, 2],), ([3],)]]))
    reader.start()
    (feed,) = one_pass(program.binding.readers[0])
    assert feed[w.name].lod() == [[0, 2, 3]]
    with pytest.raises(TypeError, match="list of Variables, not tuple"):
        create_py_reader_by_data(2, (w,))
    with pytest.raises(TypeError, match="read_file.*not int"):
        read_file(3)
    with pytest.raises(ValueError, match="1 shapes, 2 dtypes"):
        py_reader(2, [(-1, 1)], ["int64", "int64"])
    with pytest.raises(ValueError, match="capacity of at least 1, not 0"):
        py_reader(0, [(-1, 1)], ["int64"])


def test_reset_in_the_middle_begins_afresh(program):
    reader = py_reader(1, [(-1, 2), (-1, 1)], ["float32", "int64"])
    x, _ = read_file(reader)
    reader.decorate_tensor_provider(batches(100))
    for _ in range(2):
        reader.start()
        assert np.array(program.binding.readers[0].next_feed()[x.name])[0, 0] == 0
        program.binding.readers[0].next_feed()
        with pytest.raises(RuntimeError, match=r"started already: call reset\(\)"):
            reader.start()
        reader.reset()
        assert_no_reader_threads()
    reader.reset()


def test_an_error_in_the_reader_reaches_the_run_and_stays_until_reset(program):
    error = KeyError("mine")

    def broken():
        yield from batches(1)()
        raise error

    reader = py_reader(4, [(-1, 2), (-1, 1)], ["float32", "int64"])
    read_file(reader)
    reader.decorate_batch_generator(broken)
    reader.start()
    (port,) = program.binding.readers
    port.next_feed()
    for _ in range(2):
        with pytest.raises(KeyError) as info:
            port.next_feed()
        assert info.value is error
        assert info.traceback[-1].name == "broken"
    reader.reset()
    assert_no_reader_threads()


def feed_list(variable):
    return [variable("x", [-1, 2]), variable("y", [-1, 1], "int64")]


@pytest.mark.parametrize("use_multiprocess", [False, True])
def test_iterable_loader_gives_a_list_of_feeds(variable, use_multiprocess):
    loader = DataLoader.from_generator(
        feed_list(variable), capacity=2, use_multiprocess=use_multiprocess
    )
    assert loader.set_sample_generator(samples(10), 4, places=CPUPlace()) is loader
    for _ in range(2):
        got = list(loader())
        assert len(got) == 2  # the last two samples are dropped
        assert [feed["x"].shape() for (feed,) in got] == [[4, 2]] * 2
        assert got[0][0]["x"]._place() == CPUPlace()
    loader.set_sample_generator(samples(10), 4, drop_last=False, places=[CPUPlace()])
    assert [feed["y"].shape() for (feed,) in loader] == [[4, 1], [4, 1], [2, 1]]
    loader.set_sample_list_generator(batch(samples(3), 2), CPUPlace())
    assert len(list(loader)) == 2
    assert_no_reader_threads()


def test_iterable_loader_with_several_places_and_lists(variable):
    def loader(n, **kwargs):
        made = DataLoader.from_generator(feed_list(variable), capacity=2, **kwargs)
        return made.set_batch_generator(batches(5), places=[CPUPlace()] * n)

    assert [len(group) for group in loader(2)] == [2, 2]
    assert [len(group) for group in loader(2, drop_last=False)] == [2, 2, 1]
    ((first,), *rest) = loader(1, return_list=True)
    assert [tensor.shape() for tensor in first] == [[3, 2], [3, 1]]
    assert len(rest) == 4


def test_next_on_the_loader_itself(variable):
    loader = PyReader(feed_list(variable), capacity=2)
    loader.decorate_batch_generator(batches(2), places=CPUPlace())
    assert np.array(next(loader)[0]["y"])[0, 0] == 0
    assert np.array(loader.next()[0]["y"])[0, 0] == 1
    with pytest.raises(StopIteration):
        next(loader)
    assert np.array(next(loader)[0]["y"])[0, 0] == 0
    base = DataLoaderBase()
    for method in (base.__iter__, base.__next__):
        with pytest.raises(NotImplementedError):
            method()


def test_batches_are_copied_because_a_generator_may_reuse_its_buffer(variable):
    x, y = feed_list(variable)

    def reuses():
        buffer = np.zeros((1, 2), "float32")
        for i in range(4):
            buffer[:] = i
            yield buffer, [[i]]

    loader = DataLoader.from_generator([x, y], capacity=8)
    loader.set_batch_generator(reuses, places=CPUPlace())
    assert [np.array(feed["x"])[0, 0] for (feed,) in loader] == [0, 1, 2, 3]


def test_loader_of_a_program(variable, program):
    loader = PyReader(feed_list(variable), capacity=2, iterable=False)
    loader.decorate_sample_list_generator(batch(samples(4), 2))
    (port,) = program.binding.readers
    assert port.output_names == ["x", "y"]
    for _ in range(2):
        loader.start()
        assert len(one_pass(port)) == 2
        loader.reset()
    with pytest.raises(AssertionError, match="iterable=False"):
        iter(loader)


def test_lod_tensors_pass_through(variable):
    loader = DataLoader.from_generator([variable("w", [-1, 1], "int64", 1)], capacity=2)
    tensor = create_lod_tensor([[1, 2], [3]], [[2, 1]], CPUPlace())
    loader.set_batch_generator(lambda: iter([[tensor]]), places=CPUPlace())
    (((feed,),)) = list(loader)
    assert feed["w"].lod() == [[0, 2, 3]]


def test_dropping_the_iteration_ends_the_thread(variable):
    loader = DataLoader.from_generator(feed_list(variable), capacity=2)
    loader.set_batch_generator(batches(1000), places=CPUPlace())
    for _ in loader:
        break
    gc.collect()
    assert_no_reader_threads()


def test_errors_of_loaders(variable):
    variables = feed_list(variable)
    with pytest.raises(ValueError, match="capacity"):
        DataLoader.from_generator(variables)
    with pytest.raises(ValueError, match="feed_list"):
        DataLoader.from_generator(capacity=2)
    loader = DataLoader.from_generator(variables, capacity=2)
    with pytest.raises(AssertionError, match="no data source"):
        iter(loader)
    with pytest.raises(AssertionError, match="needs places"):
        loader.set_batch_generator(batches())
    with pytest.raises(AssertionError, match=r"start\(\) is for loaders with iterable=False"):
        loader.start()
    with pytest.raises(AssertionError, match="batch_size must be larger than 0"):
        loader.set_sample_generator(samples(), 0, places=CPUPlace())
    with pytest.raises(TypeError, match="function that returns a new generator.*not generator"):
        loader.set_batch_generator(batches()(), places=CPUPlace())
    with pytest.raises(TypeError, match="places must hold"):
        loader.set_batch_generator(batches(), places="cpu")
    loader.set_batch_generator(lambda: iter([([1],)]), places=CPUPlace())
    with pytest.raises(ValueError, match=r"each of x, y \(2\), but yielded 1"):
        list(loader)
    loader.set_batch_generator(lambda: iter([([[1, 2], [3]], [1])]), places=CPUPlace())
    with pytest.raises(TypeError, match="'x' is not a regular array"):
        list(loader)


def test_a_script_may_push_batches_itself(program):
    reader = py_reader(10, [(-1, 2), (-1, 1)], ["float32", "int64"])
    queue = reader.queue
    x, _ = read_file(reader)
    (port,) = program.binding.readers

    def push():
        for arrays in batches(20)():
            array = LoDTensorArray()
            for item in arrays:
                array.append(LoDTensor(item))
            assert queue.push(array)
        queue.close()

    thread = threading.Thread(target=push)
    thread.start()
    feeds = one_pass(port)
    thread.join()
    assert [np.array(feed[x.name])[0, 0] for feed in feeds] == list(range(20))
    assert (queue.size(), queue.push([])) == (0, False)
    reader.reset()
    assert reader.queue is not queue


def test_irregular_input_is_a_type_error():
    check = DataLoaderBase._check_input_array
    assert check([np.zeros(2)] * 3).shape == (3, 2)
    with pytest.raises(TypeError, match="not a regular array"):
        check([np.zeros(2), np.zeros(1)])
