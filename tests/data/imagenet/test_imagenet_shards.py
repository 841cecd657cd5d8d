"""Every image once per epoch, in the same order, over any number of workers and processes."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fleetx.data.imagenet import ImageNet
from fleetx.data.imagenet_augment import Augment
from fleetx.data.imagenet_shards import once_order, paddle_order, shard, shard_size

SMALL = Augment(crop_size=16, resize_short_size=18)


def data_set(root, **options):
    return ImageNet(root, options.pop("phase", "train"), augment=SMALL, **options)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 7, 23, 100])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_workers_share_all_images(count, world_size):
    for epoch in range(2):
        order = once_order(count, seed=5, epoch=epoch, shuffle=True)
        parts = [shard(order, rank=r, world_size=world_size) for r in range(world_size)]
        assert sorted(np.concatenate(parts).tolist()) == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        for rank, part in enumerate(parts):
            assert shard_size(count, rank=rank, world_size=world_size) == len(part)
            even = shard(order, rank=rank, world_size=world_size, even=3)
            assert len(even) == count // (3 * world_size) * 3
            assert shard_size(count, rank=rank, world_size=world_size, even=3) == len(even)
        # After a part was read by three workers, any other number of them reads the rest.
        for others in (1, 2, 5):
            rest = [
                shard(order, rank=r, world_size=others, start=count // 2) for r in range(others)
            ]
            begun = order[: count // 2].tolist()
            assert sorted(begun + np.concatenate(rest).tolist()) == list(range(count))


def test_orders_depend_on_seed_and_epoch_only():
    first = once_order(1000, seed=1, epoch=2, shuffle=True)
    np.testing.assert_array_equal(first, once_order(1000, seed=1, epoch=2, shuffle=True))
    for seed, epoch in ((1, 3), (2, 2), (2**40 + 1, 2)):
        assert (first != once_order(1000, seed=seed, epoch=epoch, shuffle=True)).any()
    np.testing.assert_array_equal(once_order(9, seed=1, epoch=2, shuffle=False), np.arange(9))


@pytest.mark.parametrize(("count", "world_size"), [(10, 1), (10, 4), (3, 8), (12, 3)])
def test_paddles_order(count, world_size):
    """The epoch seeds the shuffle of a list; its beginning fills it up; workers take turns."""
    lines = list(range(count))
    np.random.RandomState(7).shuffle(lines)
    each = -(-count // world_size)
    lines = (lines * (1 + each * world_size // count))[: each * world_size]
    order = paddle_order(count, epoch=7, shuffle=True, world_size=world_size)
    for rank in range(world_size):
        part = shard(order, rank=rank, world_size=world_size)
        assert part.tolist() == lines[rank::world_size]
        assert len(part) == each


def labels_of(batches):
    return [label for _, labels in batches for label in np.atleast_1d(labels).tolist()]


@pytest.mark.parametrize("world_size", [1, 3])
def test_every_image_once_with_loader_processes(imagenet, world_size):
    seen = {}
    for processes in (0, 1, 2):
        for rank in range(world_size):
            data = data_set(imagenet, batch_size=4, rank=rank, world_size=world_size, seed=9)
            seen[processes, rank] = list(data.loader(processes))
        batches = [batch for rank in range(world_size) for batch in seen[processes, rank]]
        assert sorted(labels_of(batches)) == sorted(i // 2 for i in range(23))
    for rank in range(world_size):
        for processes in (1, 2):
            for mine, other in zip(seen[0, rank], seen[processes, rank], strict=True):
                assert torch.equal(mine[0], other[0])
                assert torch.equal(mine[1], other[1])


def test_plain_loader_of_torch(imagenet):
    alone = list(data_set(imagenet, batch_size=4))
    loader = DataLoader(data_set(imagenet, batch_size=4), batch_size=None, num_workers=2)
    assert len(loader) == 6
    together = list(loader)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(alone, together, strict=True))
    samples = DataLoader(data_set(imagenet), batch_size=5, num_workers=2)
    assert sorted(labels_of(samples)) == sorted(i // 2 for i in range(23))


def test_epochs_differ_and_advance(imagenet):
    data = data_set(imagenet, batch_size=23)
    (first,), (second,) = list(data), list(data)
    assert data.epoch == 2
    assert first[1].tolist() != second[1].tolist()
    data.set_epoch(0)
    (again,) = list(data)
    assert torch.equal(first[0], again[0])
    (named,) = list(data_set(imagenet, batch_size=23, epoch=1))
    assert torch.equal(second[0], named[0])
    # The same image in another epoch is another picture.
    still = data_set(imagenet, shuffle=False)
    a = next(iter(still))[0]
    still.set_epoch(5)
    assert not torch.equal(a, next(iter(still))[0])


def test_validation_has_no_chance(imagenet):
    first, second = (data_set(imagenet, phase="val", batch_size=2, seed=s) for s in (1, 2))
    second.set_epoch(3)
    for mine, other in zip(first, second, strict=True):
        assert torch.equal(mine[0], other[0])
    assert labels_of(data_set(imagenet, phase="val")) == [0, 0, 1, 1, 2]


def test_dropping_the_last_batch_is_the_same_for_all_workers(imagenet):
    for world_size in (1, 2, 3, 5):
        parts = [
            data_set(imagenet, batch_size=4, rank=r, world_size=world_size, drop_last=True)
            for r in range(world_size)
        ]
        assert {len(part) for part in parts} == {23 // (4 * world_size)}
        for part in parts:
            assert [len(labels) for _, labels in part] == [4] * (23 // (4 * world_size))


def test_padding_like_paddle(imagenet):
    parts = [
        data_set(imagenet, batch_size=4, rank=r, world_size=4, sharding="paddle") for r in range(4)
    ]
    assert [sum(len(labels) for _, labels in part) for part in parts] == [6] * 4
    assert [len(part) for part in parts] == [2] * 4


def test_fleets_place_is_the_default(imagenet):
    from fleetx.fleet import Role, UserDefinedRoleMaker, fleet

    data = data_set(imagenet)
    before = fleet._role_maker
    role = UserDefinedRoleMaker(
        current_id=1, role=Role.WORKER, worker_num=3, server_endpoints=["127.0.0.1:1"]
    )
    try:
        fleet._role_maker = None
        assert data.place == (0, 1)
        role.generate_role()
        fleet._role_maker = role
        assert data.place == (1, 3)
        assert data.__getstate__()["_place"] == (1, 3)
        assert len(data.indices()) == 8
    finally:
        fleet._role_maker = before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 1}, "rank=1 and world_size=None must be given together"),
        ({"rank": 2, "world_size": 2}, r"rank=2 must be in 0\.\.world_size-1"),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"sharding": "often"}, "sharding must be one of 'once', 'paddle', not 'often'"),
        ({"dtype": "float64"}, "dtype must be one of 'float32', 'uint8', not 'float64'"),
        ({"on_error": "ignore"}, "on_error must be"),
        ({"seed": -1}, "seed=-1 must be in"),
    ],
)
def test_wrong_options(imagenet, options, message):
    with pytest.raises(ValueError, match=message):
        data_set(imagenet, **options)


def test_bytes_are_the_same_pictures(imagenet):
    floats, raw = (data_set(imagenet, batch_size=23, dtype=d) for d in ("float32", "uint8"))
    (images, _), (pixels, _) = next(iter(floats)), next(iter(raw))
    assert pixels.dtype == torch.uint8
    # Half a step of brightness is lost by rounding to bytes.
    assert (raw.normalize(pixels) - images).abs().max() < 0.51 / 255 / 0.224


def test_order_of_global_chance_is_not_touched(imagenet):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    expected = (random.random(), np.random.rand(), torch.rand(1).item())
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    list(data_set(imagenet))
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected
