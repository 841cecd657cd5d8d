"""Initial rows: independent of the server and of the order of requests, distributed as named."""

import math

import pytest
import torch

from fleetx.kernels.row_initializer import RowInitializer

# Each test runs with the compiled modules and with their fallbacks.
pytestmark = pytest.mark.usefixtures("implementation")

KINDS = ["zeros", "constant", "uniform", "normal", "truncated_normal", "xavier"]


def make(kind, seed=1, dim=16, dtype=torch.float64, **settings):
    return RowInitializer(kind, settings, seed=seed, dim=dim, dtype=dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_does_not_depend_on_its_company(kind, dtype):
    init = make(kind, dtype=dtype)
    ids = torch.randint(-(2**62), 2**62, (9001,), generator=torch.Generator().manual_seed(0))
    whole = init(ids)
    assert whole.dtype is dtype
    assert torch.equal(init(ids.flip(0)).flip(0), whole)
    for place in (0, 1, 4097, 9000):  # in pieces, and at every place of a vector instruction
        assert torch.equal(init(ids[place : place + 1])[0], whole[place])
        assert torch.equal(init(ids[place : place + 3])[0], whole[place])


def sample(kind, **settings):
    return make(kind, **settings)(torch.arange(20_000)).flatten()


def test_distributions():
    assert sample("zeros").unique().tolist() == [0.0]
    assert sample("constant", value=0.25).unique().tolist() == [0.25]
    flat = sample("uniform", low=-2.0, high=4.0)
    assert flat.min() >= -2.0
    assert flat.max() <= 4.0
    assert abs(flat.mean() - 1.0) < 0.02
    assert abs(flat.std() - 6.0 / math.sqrt(12.0)) < 0.02
    normal = sample("normal", mean=1.0, std=2.0)
    assert abs(normal.mean() - 1.0) < 0.02
    assert abs(normal.std() - 2.0) < 0.02
    assert ((normal - 1.0).abs() > 4.0).double().mean() == pytest.approx(0.0455, abs=0.002)
    cut = sample("truncated_normal", std=0.5)
    assert cut.abs().max() <= 1.0
    assert abs(cut.std() - 0.5 * 0.8796) < 0.005
    assert sample("xavier", fan_in=100.0).abs().max() <= math.sqrt(6.0 / 116.0)
    assert abs(sample("xavier", normal=1.0).std() - 0.25) < 0.005


def test_rows_and_columns_are_not_alike():
    rows = make("uniform")(torch.arange(5000))
    flat = torch.corrcoef(rows.T) - torch.eye(16)
    assert flat.abs().max() < 0.08
    assert len(rows.flatten().unique()) == rows.numel()
    assert not torch.equal(rows, make("uniform", seed=2)(torch.arange(5000)))


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def test_the_values_stay_what_they_are():
    """Rows that were never saved are made again by later versions: the rule must never change."""
    golden, seed = 0x9E3779B97F4A7C15, 7
    key = mix((seed + golden) % 2**64)
    rows = make("uniform", seed=seed, dim=2, low=0.0, high=1.0)(torch.tensor([0, -5]))
    for number, row in zip((0, 2**64 - 5), rows.tolist(), strict=True):
        start = mix((number + key) % 2**64) + key
        for column, value in enumerate(row, start=1):
            bits = mix((start + column * golden) % 2**64) >> 12
            assert value == (bits + 0.5) / 2**52
