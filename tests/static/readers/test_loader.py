"""DataLoader: feeds and lists, with and without worker processes."""

import multiprocessing
import threading

import numpy as np
import pytest
import torch

from fleetx.static.readers.collate import default_collate_fn
from fleetx.static.readers.combined_datasets import Dataset, IterableDataset, get_worker_info
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.sampler import BatchSampler
from fleetx.static.run.place import CPUPlace
from waiting import LIMIT

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])


class Pairs(Dataset):
    def __init__(self, n=10):
        self.n = n

    def __getitem__(self, idx):
        if idx >= self.n:
            raise IndexError(f"sample {idx} does not exist")
        return np.full([3], idx, "float32"), np.array([idx], "int64")

    def __len__(self):
        return self.n


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from range(7) if info is None else range(info.id, 7, info.num_workers)


@pytest.fixture
def feed_list(variable):
    return [variable("image", [-1, 3]), variable("label", [-1, 1], "int64")]


@WORKERS
def test_feeds(feed_list, num_workers):
    loader = DataLoader(
        Pairs(), feed_list, CPUPlace(), batch_size=4, num_workers=num_workers, timeout=LIMIT
    )
    assert len(loader) == 3
    for _ in range(2):
        got = list(loader())
        assert [feed["image"].shape() for (feed,) in got] == [[4, 3], [4, 3], [2, 3]]
        labels = [np.array(feed["label"]).ravel().tolist() for (feed,) in got]
        assert labels == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@WORKERS
def test_several_places(feed_list, num_workers):
    places = [CPUPlace(), CPUPlace()]
    common = {"batch_size": 2, "num_workers": num_workers}
    assert [len(group) for group in DataLoader(Pairs(), feed_list, places, **common)] == [2, 2]
    for group in DataLoader(Pairs(), feed_list, places, return_list=True, **common):
        assert [len(fields) for fields in group] == [2, 2]


@WORKERS
def test_lists_and_samplers(num_workers):
    sampler = BatchSampler(Pairs(), shuffle=True, batch_size=5)
    loader = DataLoader(Pairs(), return_list=True, batch_sampler=sampler, num_workers=num_workers)
    labels = [np.array(label).ravel().tolist() for _, label in loader]
    assert sorted(sum(labels, [])) == list(range(10))
    whole = DataLoader(Pairs(3), batch_size=None, num_workers=num_workers)
    assert [image.shape() for image, _ in whole] == [[3]] * 3
    assert len(whole) == 3


@WORKERS
def test_streams(num_workers):
    loader = DataLoader(Stream(), return_list=True, batch_size=2, num_workers=num_workers)
    got = sorted(n for numbers in loader for n in np.array(numbers).tolist())
    assert got == list(range(7))
    dropped = DataLoader(Stream(), return_list=True, batch_size=4, drop_last=True)
    assert [numbers.shape() for numbers in dropped] == [[4]]
    with pytest.raises(ValueError, match="no length"):
        len(loader)
    with pytest.raises(ValueError, match="own order"):
        DataLoader(Stream(), return_list=True, shuffle=True)


@pytest.mark.parametrize("use_shared_memory", [True, False])
def test_workers_call_collate_and_init(use_shared_memory):
    def collate(samples):
        assert get_worker_info().seed != 0
        return {"sum": sum(label for _, label in samples), "text": "a", "t": torch.ones(2)}

    loader = DataLoader(
        Pairs(4),
        return_list=True,
        batch_size=2,
        collate_fn=collate,
        num_workers=1,
        use_shared_memory=use_shared_memory,
        worker_init_fn=np.random.seed,
        persistent_workers=True,
    )
    for _ in range(2):
        assert [np.array(item["sum"]).tolist() for item in loader] == [[1], [5]]
    assert next(iter(loader))["text"] == "a"


@pytest.mark.slow
@WORKERS
def test_errors_of_the_dataset_arrive(num_workers):
    sampler = BatchSampler(Pairs(12), batch_size=3)
    loader = DataLoader(
        Pairs(),
        return_list=True,
        batch_sampler=sampler,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
    )
    for _ in range(2):  # the workers end with the first error, and others start
        with pytest.raises(IndexError, match="sample 10 does not exist"):
            list(loader)
        assert not multiprocessing.active_children()


def test_loading_does_not_shift_torchs_random_numbers():
    torch.manual_seed(3)
    expected = torch.rand(2).tolist()
    torch.manual_seed(3)
    list(DataLoader(Pairs(2), return_list=True, num_workers=1))
    assert torch.rand(2).tolist() == expected


def test_stopping_early_ends_the_thread():
    for use_buffer_reader in (True, False):
        for _ in DataLoader(Pairs(1000), return_list=True, use_buffer_reader=use_buffer_reader):
            break
    for thread in threading.enumerate():
        if thread.name == "fleetx-loader":
            thread.join(timeout=LIMIT)
            assert not thread.is_alive()


def test_refused_arguments(feed_list):
    with pytest.raises(AssertionError, match="feed_list should be set"):
        DataLoader(Pairs(), return_list=False)
    with pytest.raises(AssertionError, match="cannot be used with a batch_sampler"):
        DataLoader(Pairs(), feed_list, batch_size=2, batch_sampler=BatchSampler(Pairs()))
    for bad in ({"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 0}):
        with pytest.raises(AssertionError, match="must not be negative"):
            DataLoader(Pairs(), feed_list, **bad)
    with pytest.raises(ValueError, match="2 fields per sample, but feed_list has 1"):
        list(DataLoader(Pairs(), feed_list[:1]))
    with pytest.raises(TypeError, match="'image' is collated to list"):
        list(DataLoader(Pairs(), feed_list, collate_fn=lambda samples: [["a"], np.ones(1)]))


def test_collate():
    batch = default_collate_fn([(1, "a", {"x": np.zeros(2)}), (2, "b", {"x": np.ones(2)})])
    assert batch[0].tolist() == [1, 2]
    assert batch[1] == ["a", "b"]
    assert batch[2]["x"].shape == (2, 2)
    assert default_collate_fn([torch.ones(2)] * 3).shape == (3, 2)
    with pytest.raises(RuntimeError, match=r"\[1, 2\]"):
        default_collate_fn([[1], [1, 2]])
    with pytest.raises(TypeError, match="not object"):
        default_collate_fn([object()])
