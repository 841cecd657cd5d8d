"""Resuming continues with the same bits: random states, positions in data, kills under fleetrun."""

import random

import numpy as np
import pytest
import torch
from resume_chaos import compare

from fleetx import fleet
from fleetx.fleet.saving import random_states
from fleetx.fleet.saving.data_position import Resumable


@pytest.mark.slow
@pytest.mark.parametrize("technique", ["none", "dgc"])
def test_kills_under_max_restart_change_no_bit(tmp_path, technique):
    compare(tmp_path, technique, steps=13, kills=2, seed=5)


def draws():
    return [
        random.random(),
        random.gauss(0, 1),
        np.random.rand(),
        np.random.normal(),
        torch.rand(()),
    ]


def test_random_states_are_restored():
    np.random.normal()  # the second of a pair is kept for the next call
    state = random_states.capture()
    first = draws()
    random_states.restore(state)
    assert draws() == first


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index + random.random() + np.random.rand() + torch.rand(()).item()


def loader(kind):
    data = Noisy()
    if kind == "generator":
        generator = torch.Generator().manual_seed(5)
        return torch.utils.data.DataLoader(data, 2, shuffle=True, generator=generator)
    if kind == "distributed":
        sampler = torch.utils.data.DistributedSampler(data, 2, 1, seed=3)
        return torch.utils.data.DataLoader(data, 1, sampler=sampler)
    if kind == "processes":
        return torch.utils.data.DataLoader(data, 2, shuffle=True, num_workers=1)
    return torch.utils.data.DataLoader(data, 2, shuffle=True)


def consume(data, passes):
    for epoch in range(data.passes, passes):
        if hasattr(data.sampler, "set_epoch"):
            data.sampler.set_epoch(epoch)
        for batch in data:
            yield batch.tolist()


@pytest.mark.parametrize("kind", ["shuffle", "generator", "distributed", "processes"])
@pytest.mark.parametrize("used", [0, 2, 5, 7])
def test_a_loader_goes_on_where_it_was(kind, used, tmp_path, fresh_fleet):
    fleet.init(is_collective=True)
    torch.manual_seed(1)
    data = fleet.resumable(loader(kind))
    batches = consume(data, 3)
    for _ in range(used):
        next(batches)
    fleet.save_checkpoint(str(tmp_path), data=data)
    rest, after = list(batches), draws()
    other = fleet.resumable(loader(kind))
    fleet.load_checkpoint(str(tmp_path), data=other)
    assert list(consume(other, 3)) == rest
    assert draws() == after
    assert rest


def test_what_cannot_be_resumed_is_refused():
    with pytest.raises(TypeError, match="can be iterated over again"):
        Resumable(iter([1, 2]))

    class Stateful(list):
        def state_dict(self):
            return {}

    with pytest.raises(TypeError, match="has a state_dict with its position"):
        Resumable(Stateful())
    short = Resumable([1, 2])
    whole = Resumable([1, 2, 3, 4])
    batches = iter(whole)
    for _ in range(3):
        next(batches)
    short.load_state_dict(whole.state_dict())
    with pytest.raises(ValueError, match="the data ends before batch 3"):
        list(short)


def test_random_states_are_left_alone_on_request(tmp_path, fresh_fleet):
    fleet.init(is_collective=True)
    fleet.save_checkpoint(str(tmp_path), step=1)
    draws()
    state = random_states.capture()
    assert fleet.load_checkpoint(str(tmp_path), exact=False) == {"step": 1}
    expected = draws()
    random_states.restore(state)
    assert draws() == expected
    with pytest.raises(ValueError, match="cannot be the name of a part"):
        fleet.save_checkpoint(str(tmp_path), **{"random@states": 1})
