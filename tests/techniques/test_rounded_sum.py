"""Sums of rounded messages over three workers, with the messages of all or with shares."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from running import run

from fleetx.comm.share_sums import shares_of
from fleetx.kernels import rounded_blocks

WORKERS = 3


@pytest.fixture(scope="module", params=["gloo", "shm"])
def trained(tmp_path_factory: pytest.TempPathFactory, request: Any) -> list[list[dict[str, Any]]]:
    """What each worker sent and got, sum by sum."""
    folder = tmp_path_factory.mktemp("sums")
    return run("share_sums.py", folder, workers=WORKERS, flags=["--backend", request.param])


def tensors(rows: tuple[dict[str, Any], ...], key: str) -> list[torch.Tensor]:
    return [torch.tensor(row[key]) for row in rows]


def decoded(message: torch.Tensor, size: int, bits: int) -> torch.Tensor:
    return rounded_blocks.from_blocks(message, torch.empty(size), bits)


def test_every_worker_gets_the_rounded_sum_of_the_rounded_differences(trained):
    residuals: list[torch.Tensor] = []
    lost, before = torch.empty(0), 0
    for rows in zip(*trained, strict=True):
        sent, bits = tensors(rows, "sent"), rows[0]["bits"]
        size = len(sent[0])
        if len(lost) != size or bits != before:
            residuals = [torch.zeros(size) for _ in range(WORKERS)]
            lost, before = torch.zeros(size), bits
        once = torch.zeros(size)
        for residual, values in zip(residuals, sent, strict=True):
            residual += values
            restored = decoded(rounded_blocks.to_blocks(residual, bits), size, bits)
            residual -= restored
            once += restored
        lost += once
        twice = decoded(rounded_blocks.to_blocks(lost, bits), size, bits)
        lost -= twice
        for rank, row in enumerate(rows):
            assert row["sum"] == twice.tolist()
            assert row["gathered"] == once.tolist()
            assert row["residual"] == residuals[rank].tolist()
            own = shares_of(size, WORKERS)[rank]
            assert row["sum_residual"][own] == lost[own].tolist()
            assert not any(row["sum_residual"][: own.start] + row["sum_residual"][own.stop :])


def test_what_rides_with_a_message_is_summed_exactly(trained):
    for rows in zip(*trained, strict=True):
        for number in range(2):
            sent = torch.tensor([row["ridden"][number] for row in rows], dtype=torch.float64)
            for row in rows:
                found = torch.tensor(row["riders"][number], dtype=torch.float64)
                torch.testing.assert_close(found, sent.sum(0), rtol=1e-6, atol=1e-6)
                assert row["riders"] == rows[0]["riders"]


def test_further_groups_wait_as_long_as_the_first(trained):
    assert [rows[-1]["timeouts"] for rows in trained] == [[177, 177]] * WORKERS


@pytest.mark.parametrize("entries", [0, 1, 256, 257, 1023, 1024, 1025, 154_050])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_shares_are_whole_blocks_and_cover_all_entries(entries, workers):
    shares = shares_of(entries, workers)
    assert len(shares) == workers
    assert shares[0].start == 0
    assert shares[-1].stop == entries
    for one, other in zip(shares, shares[1:], strict=False):
        assert one.stop == other.start
        assert one.stop % rounded_blocks.BLOCK == 0 or one.stop == entries
    sizes = [share.stop - share.start for share in shares]
    assert max(sizes) <= -(-entries // workers) + rounded_blocks.BLOCK
