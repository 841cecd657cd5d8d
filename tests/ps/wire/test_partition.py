"""Slices and ids: each has exactly one place, the one that Paddle's rules give it."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetx.ps.wire.partition import (
    HashName,
    RoundRobin,
    servers_of_ids,
    slice_parameter,
    split_ids,
)


@pytest.mark.parametrize(
    ("shape", "servers", "expected"),
    [
        # Worked out by Paddle's rule: floor(numel / 8192) pieces at most, whole rows.
        ((100,), 3, [(0, (100,))]),
        ((8192 * 2,), 3, [(0, (8192,)), (8192, (8192,))]),
        ((8192 * 3 + 1,), 3, [(0, (8193,)), (8193, (8193,)), (16386, (8191,))]),
        ((1000, 100), 3, [(0, (334, 100)), (33400, (334, 100)), (66800, (332, 100))]),
        ((3, 10000), 2, [(0, (2, 10000)), (20000, (1, 10000))]),
        ((), 2, [(0, ())]),
    ],
)
def test_slices_of_parameters(shape, servers, expected):
    slices = slice_parameter("w", shape, servers=servers)
    assert [(s.start, s.shape) for s in slices] == expected
    if len(slices) == 1:
        assert slices[0].name == "w"
    else:
        assert [s.name for s in slices] == [f"w.block{i}" for i in range(len(slices))]
    assert slice_parameter("w", shape, servers=servers, slice_var_up=False)[0].shape == shape


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(1, 7), st.integers(1, 100))
def test_slices_cover_a_parameter_once(shape, servers, least):
    whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
    slices = slice_parameter("w", shape, servers=servers, min_block_size=least)
    assert len(slices) <= servers
    assert torch.equal(torch.cat([s.of(whole) for s in slices]), whole)
    assert all(s.shape[1:] == tuple(shape[1:]) for s in slices)


@pytest.mark.slow
def test_dispatchers():
    turn = RoundRobin(3)
    assert turn.dispatch("abcd") == [0, 1, 2, 0]
    assert turn.dispatch("e") == [1]
    assert turn.dispatch("fg") == [2, 0]
    names = [f"w.block{i}" for i in range(50)]
    assert set(HashName(3).dispatch(names)) == {0, 1, 2}
    code = (
        "import sys; from fleetx.ps.wire.partition import HashName\n"
        "print(HashName(3).dispatch(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "77"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(HashName(3).dispatch(names))


def test_wrong_numbers_are_named():
    with pytest.raises(ValueError, match="for 0 servers"):
        slice_parameter("w", (3,), servers=0)
    for kind in (RoundRobin, HashName):
        with pytest.raises(ValueError, match="at least one server"):
            kind(0)


@pytest.mark.parametrize("servers", [1, 2, 3, 10])
def test_ids_are_spread_and_found_again(servers, implementation):
    ids = torch.arange(0, 2**20, 64)  # a pattern that id % n would not spread
    where = servers_of_ids(ids, servers)
    parts = split_ids(ids, servers)
    for server, positions in enumerate(parts):
        assert torch.equal(positions, (where == server).nonzero().flatten())
        assert len(positions) == pytest.approx(len(ids) / servers, rel=0.1)
    assert sum(len(part) for part in parts) == len(ids)
