"""Resuming in the middle of an epoch; images that cannot be read."""

import json

import pytest
import torch

from fleetx import torch_private
from fleetx.data.imagenet import ImageNet
from fleetx.data.imagenet_augment import Augment
from fleetx.data.imagenet_list import DataError

SMALL = Augment(crop_size=16, resize_short_size=18)


def data_set(root, **options):
    return ImageNet(root, augment=SMALL, **{"batch_size": 3, **options})


def same(batches, others):
    assert len(batches) == len(others)
    for mine, other in zip(batches, others, strict=True):
        assert torch.equal(mine[0], other[0])
        assert torch.equal(mine[1], other[1])


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_going_on_is_like_never_having_stopped(imagenet, processes):
    place = {"rank": 1, "world_size": 2, "seed": 4}
    data = data_set(imagenet, **place)
    epochs = [list(data) for _ in range(3)]
    for stop in (0, 1, 3, len(epochs[1])):
        loader = data_set(imagenet, **place).loader(processes)
        loader.set_epoch(1)
        passing = iter(loader)
        same([next(passing) for _ in range(stop)], epochs[1][:stop])
        state = json.loads(json.dumps(loader.state_dict()))
        again = data_set(imagenet, **{**place, "seed": 0}).loader(processes)
        again.load_state_dict(state)
        again.set_epoch(1)
        same(list(again), epochs[1][stop:])
        same(list(again), epochs[2])


def test_one_loader_serves_many_passes(imagenet):
    expected = list(data_set(imagenet))
    loader = data_set(imagenet).loader(2)
    assert len(loader) == 8
    passing = iter(loader)
    same([next(passing), next(passing)], expected[:2])
    # Another pass begins anew, whatever the processes have read ahead of the one that was left.
    same(list(loader), expected)


def test_another_number_of_workers_reads_the_rest(imagenet):
    begun, state = [], {}
    for rank in range(3):
        data = data_set(imagenet, rank=rank, world_size=3, batch_size=2)
        passing = iter(data)
        begun += [label for _ in range(2) for label in next(passing)[1].tolist()]
        state = data.state_dict()
    for rank in range(2):
        data = data_set(imagenet, rank=rank, world_size=2)
        data.load_state_dict(state)
        begun += [label for _, labels in data for label in labels.tolist()]
    assert sorted(begun) == sorted(i // 2 for i in range(23))


def test_states_of_other_data_are_refused(imagenet, own_imagenet):
    state = data_set(own_imagenet).state_dict()
    with pytest.raises(ValueError, match="images=6, but this one has images=23"):
        data_set(imagenet).load_state_dict(state)
    state = data_set(imagenet, sharding="paddle").state_dict()
    with pytest.raises(ValueError, match="sharding='paddle', but this one has sharding='once'"):
        data_set(imagenet).load_state_dict(state)
    wider = data_set(imagenet, sharding="paddle", rank=0, world_size=2)
    with pytest.raises(ValueError, match="cannot resume with 2 workers a pass of 1"):
        wider.load_state_dict(state)


@pytest.fixture
def spoilt(own_imagenet):
    """Line 2 is cut off, line 3 no image, line 4 not there, line 6 without a label."""
    folder = own_imagenet / "train"
    cut = folder / "n00000000/n00000000_1.jpeg"
    cut.write_bytes(cut.read_bytes()[:300])
    (folder / "n00000001/n00000001_2.jpeg").write_text("not an image")
    (folder / "n00000001/n00000001_3.jpeg").unlink()
    text = (own_imagenet / "train.txt").read_text()
    (own_imagenet / "train.txt").write_text(text.rstrip()[:-2] + "\n")
    return own_imagenet


@pytest.mark.parametrize("processes", [0, 2])
def test_unreadable_images_are_left_out_and_counted(spoilt, processes):
    data = data_set(spoilt, on_error="skip", shuffle=False, batch_size=2)
    loader = data.loader(processes)
    # The middle batch has nothing left and is not handed out.
    assert [labels.tolist() for _, labels in loader] == [[0], [2]]
    found = [(problem.line, problem.kind) for problem in data.skipped]
    unreadable = [(2, "unreadable image"), (3, "unreadable image"), (4, "missing image")]
    assert found == [(6, "no label"), *unreadable]
    assert data.epoch == 1


@pytest.mark.parametrize("processes", [0, 1])
def test_unreadable_images_are_named(spoilt, processes):
    lines = (spoilt / "train.txt").read_text().splitlines()
    (spoilt / "train.txt").write_text("\n".join(lines[:5]))
    loader = data_set(spoilt, shuffle=False, batch_size=1).loader(processes)
    passing = iter(loader)
    next(passing)
    with pytest.raises(DataError, match=r"train\.txt:2: image '.*_1\.jpeg' cannot be used: "):
        next(passing)


@pytest.mark.slow
def test_errors_pass_through_torchs_own_loader(own_imagenet):
    (own_imagenet / "train/n00000000/n00000000_1.jpeg").unlink()
    loader = torch.utils.data.DataLoader(data_set(own_imagenet), batch_size=None, num_workers=1)
    with pytest.raises(DataError, match=r"train\.txt:2: image '.*_1\.jpeg' does not exist"):
        list(batches := iter(loader))
    torch_private.end_loader_workers(batches)
