"""Datasets and samplers: what they give, and what they refuse."""

import numpy as np
import pytest
import torch

from fleetx.static.readers.combined_datasets import (
    ChainDataset,
    ComposeDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    get_worker_info,
    random_split,
)
from fleetx.static.readers.sampler import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    WeightedRandomSampler,
)

# From Paddle 2.6.2: 13 samples, batches of 2, worker 1 of 3.
PADDLE_ORDER = {
    "plain": [[2, 3], [8, 9], [0]],
    "epoch 0": [[8, 9], [10, 7], [5]],
    "epoch 7": [[10, 2], [0, 7], [9]],
}


class Numbers(Dataset):
    def __init__(self, n):
        self.n = n

    def __getitem__(self, idx):
        return np.array([idx], "float32"), idx

    def __len__(self):
        return self.n


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        yield from range(self.n)


def test_datasets():
    assert len(TensorDataset([np.zeros((4, 2)), torch.ones(4)])) == 4
    assert ComposeDataset([Numbers(3), Numbers(3)])[1][1::2] == (1, 1)
    assert list(ChainDataset([Stream(2), Stream(3)])) == [0, 1, 0, 1, 2]
    assert Subset(Numbers(5), [3, 1])[0][1] == 3
    parts = random_split(Numbers(10), [7, 3])
    assert sorted(part[i][1] for part in parts for i in range(len(part))) == list(range(10))
    assert [len(part) for part in parts] == [7, 3]
    assert get_worker_info() is None
    assert isinstance(Stream(1), torch.utils.data.IterableDataset)


def test_dataset_errors():
    for broken in (lambda: Dataset()[0], lambda: len(Dataset()), lambda: iter(IterableDataset())):
        with pytest.raises(NotImplementedError, match="Dataset must define"):
            broken()
    for broken in (lambda: Stream(1)[0], lambda: len(Stream(1))):
        with pytest.raises(RuntimeError, match="IterableDataset"):
            broken()
    with pytest.raises(AssertionError, match=r"\[3, 4\]"):
        TensorDataset([np.zeros(4), np.zeros(3)])
    with pytest.raises(AssertionError, match="one length"):
        ComposeDataset([Numbers(3), Numbers(4)])
    with pytest.raises(AssertionError, match="IterableDatasets, not Numbers"):
        ChainDataset([Numbers(3)])
    with pytest.raises(ValueError, match=r"\[5, 6\].*10 samples"):
        random_split(Numbers(10), [5, 6])


def test_sequence_and_random_sampler():
    data = Numbers(20)
    assert list(SequenceSampler(data)) == list(range(20))
    assert sorted(RandomSampler(data)) == list(range(20))
    drawn = list(RandomSampler(data, replacement=True, num_samples=50))
    assert len(drawn) == 50
    assert set(drawn) <= set(range(20))
    assert list(RandomSampler(data, generator=iter(range(6)))) == list(range(6))
    with pytest.raises(NotImplementedError):
        iter(Sampler(data))
    with pytest.raises(TypeError):
        RandomSampler(data, replacement=1)
    with pytest.raises(ValueError, match="replacement=True"):
        RandomSampler(data, num_samples=3)


def test_random_sampler_follows_the_seed_as_in_paddle():
    np.random.seed(5)
    order = list(RandomSampler(Numbers(10)))
    np.random.seed(5)
    assert order == np.random.choice(np.arange(10), 10, replace=False).tolist()


def test_weighted_sampler():
    weights = np.array([0, 0.5, 0, 2.0])
    assert set(WeightedRandomSampler(weights, 30)) <= {1, 3}
    assert sorted(WeightedRandomSampler(weights, 2, replacement=False)) == [1, 3]
    assert len(WeightedRandomSampler(np.stack([weights, weights]), 3)) == 6
    for bad in (np.zeros(3), -np.ones(3), np.array([np.inf, 1])):
        with pytest.raises(AssertionError, match="weights must be finite"):
            list(WeightedRandomSampler(bad, 1))
    with pytest.raises(AssertionError, match="only 2 weights"):
        list(WeightedRandomSampler(weights, 3, replacement=False))
    for args in ((2.3, True), (-1, True), (5, 5)):
        with pytest.raises(ValueError, match="should be|is True or False"):
            WeightedRandomSampler(weights, *args)


@pytest.mark.parametrize(("drop_last", "expected"), [(False, [3, 3, 3, 1]), (True, [3, 3, 3])])
def test_batch_sampler(drop_last, expected):
    sampler = BatchSampler(Numbers(10), batch_size=3, drop_last=drop_last)
    assert [len(group) for group in sampler] == expected
    assert len(sampler) == len(expected)
    shuffled = BatchSampler(Numbers(10), shuffle=True, batch_size=10)
    assert sorted(next(iter(shuffled))) == list(range(10))
    own = BatchSampler(sampler=SequenceSampler(Numbers(4)), batch_size=2)
    assert list(own) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"sampler": SequenceSampler(Numbers(3)), "shuffle": True},
        {"dataset": Numbers(3), "sampler": SequenceSampler(Numbers(3))},
        {"dataset": Stream(3)},
        {"dataset": Numbers(3), "batch_size": 0},
        {"dataset": Numbers(3), "shuffle": 1},
        {"dataset": Numbers(3), "drop_last": None},
    ],
)
def test_batch_sampler_refuses(arguments):
    with pytest.raises(AssertionError):
        BatchSampler(**arguments)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("total", "size", "workers"), [(10, 2, 2), (11, 4, 3), (2, 3, 4)])
def test_workers_share_all_samples_evenly(shuffle, total, size, workers):
    samplers = [
        DistributedBatchSampler(Numbers(total), size, workers, rank, shuffle)
        for rank in range(workers)
    ]
    passes = [list(sampler) for sampler in samplers]
    assert len({len(groups) for groups in passes}) == 1
    assert len(passes[0]) == len(samplers[0])
    seen = [index for groups in passes for group in groups for index in group]
    assert set(seen) == set(range(total))
    assert len(seen) == samplers[0].total_size


def test_distributed_order_is_paddles():
    sampler = DistributedBatchSampler(Numbers(13), 2, 3, 1)
    assert list(sampler) == PADDLE_ORDER["plain"]
    shuffled = DistributedBatchSampler(Numbers(13), 2, 3, 1, shuffle=True)
    assert list(shuffled) == PADDLE_ORDER["epoch 0"]
    shuffled.set_epoch(7)
    assert list(shuffled) == PADDLE_ORDER["epoch 7"]


def test_rank_comes_from_the_launcher(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    sampler = DistributedBatchSampler(Numbers(4), 1)
    assert (sampler.local_rank, sampler.nranks) == (1, 2)
    assert list(sampler) == [[1], [3]]
    with pytest.raises(AssertionError, match="from 0 to 1.*it is 2"):
        DistributedBatchSampler(Numbers(4), 1, rank=2)
    monkeypatch.setenv("PADDLE_TRAINER_ID", "x")
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ID"):
        DistributedBatchSampler(Numbers(4), 1)
