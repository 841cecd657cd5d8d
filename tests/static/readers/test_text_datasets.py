"""QueueDataset and InMemoryDataset: text files to feeds, and data generators as pipe commands."""

import contextlib
import gzip
import os
import random
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fleetx import static
from fleetx.data.data_generator import MultiSlotDataGenerator, MultiSlotStringDataGenerator
from fleetx.static.errors import DataFormatError
from fleetx.static.readers.file_datasets import DatasetFactory, InMemoryDataset, QueueDataset
from fleetx.static.readers.loader import DataLoader
from fleetx.static.run.place import CPUPlace
from waiting import LIMIT, is_running, wait_until


@pytest.fixture
def slots(variable):
    return [
        variable("ids", [-1, 1], "int64", lod_level=1),
        variable("dense", [-1, 2]),
        variable("label", [-1, 1], "int64"),
    ]


def write(folder, name, lines):
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines))
    return str(path)


@pytest.fixture
def files(tmp_path):
    lines = [f"{1 + i % 3} {' '.join(['9'] * (i % 3 + 1))} 2 {i}.5 -1 1 {i}" for i in range(7)]
    return [write(tmp_path, "a.txt", lines[:3]), write(tmp_path, "b.txt", lines[3:])]


def make(kind, slots, files, **settings):
    dataset = kind()
    dataset.init(use_var=slots, **settings)
    dataset.set_filelist(files)
    return dataset


def labels(feeds):
    return [np.array(feed["label"]).ravel().tolist() for feed in feeds]


@pytest.mark.parametrize("thread_num", [1, 3])
@pytest.mark.parametrize("pipe_command", ["cat", "cat | cat"])
def test_queue_dataset(slots, files, thread_num, pipe_command):
    dataset = make(
        QueueDataset, slots, files, batch_size=2, thread_num=thread_num, pipe_command=pipe_command
    )
    for _ in range(2):
        feeds = list(dataset)
        assert labels(feeds) == [[0, 1], [2, 3], [4, 5], [6]]
    first = feeds[0]
    assert first["ids"].shape() == [3, 1]
    assert first["ids"].recursive_sequence_lengths() == [[1, 2]]
    assert np.array(first["dense"]).tolist() == [[0.5, -1], [1.5, -1]]
    assert np.array(first["dense"]).flags.writeable


def test_settings_of_fluid(slots, files):
    dataset = DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var(slots)
    dataset.set_batch_size(7)
    dataset.set_thread(2)
    dataset.set_pipe_command("cat")
    dataset.set_hdfs_config("", "")
    dataset.set_filelist(files)
    assert len(list(dataset)) == 1
    assert 'name: "ids"\n    type: "uint64"\n    is_used: true' in dataset.desc()
    with pytest.raises(ValueError, match="'MyDataset' does not exist"):
        DatasetFactory().create_dataset("MyDataset")
    for shuffle in (dataset.local_shuffle, dataset.global_shuffle):
        with pytest.raises(NotImplementedError, match="InMemoryDataset"):
            shuffle()
    with pytest.raises(ValueError, match="no setting 'speed'"):
        dataset.update_settings(speed=3)


@pytest.mark.parametrize("thread_num", [1, 3])
def test_in_memory_dataset(slots, files, thread_num):
    dataset = make(InMemoryDataset, slots, files, batch_size=4, thread_num=thread_num)
    with pytest.raises(RuntimeError, match=r"load_into_memory\(\) first"):
        iter(dataset)
    dataset.load_into_memory()
    assert labels(dataset) == [[0, 1, 2, 3], [4, 5, 6]]
    assert (dataset.get_memory_data_size(), dataset.get_shuffle_data_size()) == (7, 0)
    random.seed(1)
    dataset.local_shuffle()
    shuffled = sum(labels(dataset), [])
    assert shuffled != list(range(7))
    assert sorted(shuffled) == list(range(7))
    dataset.global_shuffle()
    assert dataset.get_shuffle_data_size() == 7
    dataset.release_memory()
    assert dataset.get_memory_data_size() == 0
    dataset.preload_into_memory()
    dataset.wait_preload_done()
    assert dataset.get_memory_data_size() == 7


def test_slots_shuffle_changes_one_slot_only(slots, files):
    dataset = make(InMemoryDataset, slots, files, batch_size=7)
    dataset.load_into_memory()
    random.seed(1)
    dataset.slots_shuffle(["dense"])
    (feed,) = dataset
    assert labels([feed]) == [list(range(7))]
    dense = np.array(feed["dense"])[:, 0].tolist()
    assert dense != [i + 0.5 for i in range(7)]
    assert Counter(dense) == Counter(i + 0.5 for i in range(7))


def test_instance_ids_are_skipped(slots, tmp_path):
    path = write(tmp_path, "a", ["1 id7 1 some_text 1 4 2 0 0 1 3"])
    dataset = make(InMemoryDataset, slots, [path], parse_ins_id=True, parse_content=True)
    dataset.load_into_memory()
    assert labels(dataset) == [[3]]


def test_feature_signs_use_64_bits(variable, tmp_path):
    path = write(tmp_path, "a", [f"2 {2**64 - 1} 5", "", "1 -1"])
    dataset = make(QueueDataset, [variable("s", [-1, 1], "int64", 1)], [path], batch_size=2)
    (feed,) = dataset
    assert np.array(feed["s"]).ravel().tolist() == [-1, 5, -1]


def test_compressed_files_are_unpacked(slots, tmp_path):
    path = str(tmp_path / "a.gz")
    with gzip.open(path, "wt") as file:
        file.write("1 4 2 0 0 1 3\n" * 5)
    for pipe_command, count in (("cat", 5), ("head -n 2", 2)):
        dataset = make(QueueDataset, slots, [path], pipe_command=pipe_command)
        assert len(list(dataset)) == count


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 4 2 0 0", "it ends before slot 'label'"),
        ("1 4 2 0 0 3 1", "'label' announces 3 values, but 1 follow"),
        ("1 4 3 0 0 0 1 1", r"'dense' of shape \(-1, 2\) needs 2 values, not 3"),
        ("0 2 0 0 1 1", "'ids' has no values; pad"),
        ("x 4 2 0 0 1 1", "'x' is not a number of values for slot 'ids'"),
        ("1 4.5 2 0 0 1 1", "'ids' has a value that is not a number"),
    ],
)
@pytest.mark.parametrize("kind", [QueueDataset, InMemoryDataset])
def test_a_bad_line_is_named(slots, tmp_path, line, message, kind):
    path = write(tmp_path, "bad.txt", ["1 4 2 0 0 1 3", line])
    dataset = make(kind, slots, [path])
    read = dataset.load_into_memory if kind is InMemoryDataset else lambda: list(dataset)
    with pytest.raises(DataFormatError, match=rf"bad.txt', line 2: .*{message}"):
        read()


def test_samples_of_a_dense_slot_may_have_several_rows(tmp_path):
    with static.program_guard(static.Program(), static.Program()):
        ids = static.data("ids", [-1, 1], "int64")
    path = write(tmp_path, "rows.txt", ["1 4", "3 5 6 7"])
    (batch,) = make(QueueDataset, [ids], [path], batch_size=2)
    assert batch["ids"].numpy().tolist() == [[4], [5], [6], [7]]


def test_a_dense_slot_may_have_two_open_dimensions(tmp_path):
    with static.program_guard(static.Program(), static.Program()):
        values = static.data("values", [-1, -1], "float32")
    path = write(tmp_path, "rows.txt", ["2 4 5", "2 6 7", "1 8"])
    even, odd = make(QueueDataset, [values], [path], batch_size=2)
    assert even["values"].numpy().tolist() == [[4, 5], [6, 7]]
    assert odd["values"].numpy().tolist() == [[8]]
    with pytest.raises(
        DataFormatError, match=r"numbers of values: \[1, 2\]; pad them .*lod_level=1"
    ):
        list(make(QueueDataset, [values], [path], batch_size=3))


def test_missing_files_and_failing_commands_are_named(slots, files):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list(make(QueueDataset, slots, ["nowhere"]))
    with pytest.raises(RuntimeError, match=r"'exit 3' ended with exit code 3 on .*a.txt"):
        list(make(QueueDataset, slots, files, pipe_command="exit 3"))
    with pytest.raises(ValueError, match="'hdfs:/x' is not a local file"):
        list(make(QueueDataset, slots, ["hdfs:/x"]))
    remote = make(QueueDataset, slots, ["hdfs:/x"], download_cmd=f"cat {files[0]}; true")
    assert len(list(remote)) == 3
    with pytest.raises(RuntimeError, match="set_use_var"):
        list(QueueDataset())


def test_only_float32_and_int64(variable):
    with pytest.raises(ValueError, match="'h' has type VarType.FP16"):
        QueueDataset().set_use_var([variable("h", [-1, 1], "float16")])


def children() -> set[str]:
    """The child processes of this one; other tests may have left servers of processes running."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that ends just now
            found.update((task / "children").read_text().split())
    return found


def test_stopping_early_ends_threads_and_processes(slots, tmp_path):
    path = write(tmp_path, "a", ["1 4 2 0 0 1 3"] * 20000)
    dataset = make(QueueDataset, slots, [path] * 4, thread_num=2, pipe_command="cat -")
    before = children()
    for _ in dataset:
        break
    for thread in threading.enumerate():
        if thread.name.startswith("fleetx"):
            thread.join(timeout=LIMIT)
            assert not thread.is_alive()
    # A filter whose shell was ended is a child of this process for a moment.
    wait_until(lambda: not any(is_running(int(p)) for p in children() - before), "no filter left")


def test_loader_from_dataset(slots, files):
    dataset = make(QueueDataset, slots, files, batch_size=2)
    loader = DataLoader.from_dataset(dataset, [CPUPlace()], drop_last=True)
    for _ in range(2):
        assert labels(feed for (feed,) in loader()) == [[0, 1], [2, 3], [4, 5]]
    assert len(list(DataLoader.from_dataset(dataset, CPUPlace(), drop_last=False))) == 4
    with pytest.raises(AssertionError, match="not list"):
        DataLoader.from_dataset([], CPUPlace())


def test_the_last_batches_of_a_dataset_are_divided_among_places(slots, files):
    dataset = make(QueueDataset, slots, files, batch_size=2)
    loader = DataLoader.from_dataset(dataset, [CPUPlace()] * 3, drop_last=False)
    assert [labels(feeds) for feeds in loader] == [[[0, 1], [2, 3], [4, 5]], [[6]]]
    loader = DataLoader.from_dataset(dataset, [CPUPlace()] * 2, drop_last=False)
    assert [labels(feeds) for feeds in loader] == [[[0, 1], [2, 3]], [[4, 5], [6]]]
    dataset = make(QueueDataset, slots, files, batch_size=5)
    loader = DataLoader.from_dataset(dataset, [CPUPlace()] * 3, drop_last=False)
    ((first, *others),) = list(loader)
    assert labels([first, *others]) == [[0, 1, 2], [3, 4, 5], [6]]
    assert first["ids"].recursive_sequence_lengths() == [[1, 2, 3]]


GENERATOR = """
from fleetx.data.data_generator import MultiSlotDataGenerator
class Words(MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            words, label = line.strip().split(",")
            ids = [int(w) for w in words.split()]
            yield [("ids", ids), ("dense", [0.5, 1]), ("label", [int(label)])]
        return samples
Words().run_from_stdin()
"""


def test_a_data_generator_as_pipe_command(slots, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    script = write(tmp_path, "generator.py", [GENERATOR])
    raw = write(tmp_path, "raw.txt", ["1 2,0", "3,1"])
    dataset = make(
        QueueDataset, slots, [raw], batch_size=2, pipe_command=f"{sys.executable} {script}"
    )
    (feed,) = dataset
    assert np.array(feed["ids"]).ravel().tolist() == [1, 2, 3]
    assert labels([feed]) == [[0, 1]]


def run_generator(base, samples, capsys):
    class Generator(base):
        def generate_sample(self, line):
            return lambda: iter(samples)

    generator = Generator()
    generator.set_batch(1)
    generator.run_from_memory()
    return generator, capsys.readouterr().out


def test_generators_write_multi_slot_lines(capsys):
    second = [("a", [np.int64(3), True]), ("b", [np.float32(1.5)])]
    samples = [(("a", [1, 2]), ("b", [0])), None, second]
    generator, text = run_generator(MultiSlotDataGenerator, samples, capsys)
    assert text == "2 1 2 1 0\n2 3 1 1 1.5\n"
    assert generator._proto_info == [("a", "uint64"), ("b", "float")]
    zipped = [zip(["a", "b"], [["1", "x"], ["0"]], strict=True)]
    assert run_generator(MultiSlotStringDataGenerator, zipped, capsys)[1] == "2 1 x 1 0\n"


@pytest.mark.parametrize(
    "samples",
    [
        ["words"],
        [[(1, [1])]],
        [[("a", "1")]],
        [[("a", [])]],
        [[("a", ["x"])]],
        [[("a", [1])], [("b", [1])]],
        [[("a", [1])], [("a", [1]), ("b", [1])]],
    ],
)
def test_generators_refuse_wrong_samples(samples, capsys):
    with pytest.raises(ValueError, match="[Ss]lot|generate_sample"):
        run_generator(MultiSlotDataGenerator, samples, capsys)
    with pytest.raises(NotImplementedError, match="generate_sample"):
        MultiSlotDataGenerator().run_from_memory()


def test_lines_of_one_id_are_merged(slots, tmp_path, caplog):
    lines = [
        "1 a 1 7 2 0 0 1 1",  # with the next: ids from here, dense from there
        "1 a 1 0 2 .5 1 1 0",
        "1 b 1 7 2 0 0 1 2",  # alone
        "1 c 1 7 2 0 0 1 3",  # both have ids
        "1 c 1 8 2 0 0 1 0",
    ]
    dataset = make(InMemoryDataset, slots, [write(tmp_path, "ids.txt", lines)], batch_size=9)
    dataset._set_merge_by_lineid(2)  # a name of Paddle 2.0
    dataset.load_into_memory()
    assert dataset.get_memory_data_size() == 5
    dataset.global_shuffle()
    (feed,) = dataset
    assert [np.array(feed[slot.name]).ravel().tolist() for slot in slots] == [[7], [0.5, 1], [1]]
    assert "3 of 5 records were dropped" in caplog.text
    dataset.update_settings(merge_size=0)
    dataset.load_into_memory()
    dataset.dataset.merge_by_lineid()
    assert sorted(np.array(next(iter(dataset))["label"]).ravel()) == [1, 2]
