"""Every sample of an epoch is used once, even if the number of workers changes."""

import random

import pytest

from fleetx.data.elastic_batches import EpochPlan, Share


def plan(length: int, batch_size: int, *, keeps_global: bool) -> EpochPlan:
    return EpochPlan(
        length=length, batch_size=batch_size, keeps_global=keeps_global, shuffle=True, seed=3
    )


@pytest.mark.parametrize("keeps_global", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_each_sample_is_used_once_by_changing_groups(keeps_global, seed):
    chance = random.Random(seed)
    epoch = plan(chance.randrange(1, 60), chance.randrange(1, 9), keeps_global=keeps_global)
    seen: list[int] = []
    while len(seen) < epoch.length:
        size = chance.randrange(1, 6)
        shares = [next(epoch.shares(7, len(seen), rank, size)) for rank in range(size)]
        assert len({share.total for share in shares}) == 1
        assert sum(share.count for share in shares) == shares[0].total
        assert all(share.samples for share in shares)
        for share in shares:
            seen += share.samples[: share.count]
    assert sorted(seen) == list(range(epoch.length))


def test_global_batch_is_kept_or_scaled():
    kept, scaled = (plan(100, 12, keeps_global=keeps) for keeps in (True, False))
    assert [next(kept.shares(0, 0, 0, size)).total for size in (1, 3, 4)] == [12, 12, 12]
    assert [next(scaled.shares(0, 0, 0, size)).total for size in (1, 3, 4)] == [12, 36, 48]
    assert [next(kept.shares(0, 0, rank, 5)).count for rank in range(5)] == [3, 3, 2, 2, 2]


def test_worker_without_samples_gets_one_that_does_not_count():
    shares = [next(plan(5, 8, keeps_global=True).shares(0, 3, rank, 3)) for rank in range(3)]
    assert [share.count for share in shares] == [1, 1, 0]
    assert shares[2].samples == shares[0].samples


def test_order_depends_on_epoch_and_seed_only():
    first = plan(50, 4, keeps_global=False)
    assert first.order(0) == plan(50, 4, keeps_global=False).order(0) != first.order(1)


def test_parts_of_a_share_add_up_to_it():
    share = Share([5, 3, 1, 2, 4], 5, 11)
    parts = share.parts(2)
    assert [part.samples for part in parts] == [[5, 3], [1, 2], [4]]
    assert [(part.count, part.total) for part in parts] == [(2, 0), (2, 0), (1, 11)]
    assert Share([7], 0, 2).parts(4) == [Share([7], 0, 2)]
