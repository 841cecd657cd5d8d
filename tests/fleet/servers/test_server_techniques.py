"""Techniques in jobs with servers: the same numbers as one process with all batches, or refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import run_cases
from technique_cases import (
    CLIP,
    CLIPPED,
    EACH,
    FRESH,
    MERGED,
    OF_ONE,
    PAIRS,
    RECOMPUTED,
    SCALED,
    STEPS,
    Case,
    a_program_alone,
    alone,
    find_a_nan,
    same,
    save_merged,
    served,
    train,
    train_a_program,
    train_and_flush,
    train_by_every_call,
    train_in_half,
)

import warm_start
from fleetx import static
from waiting import LIMIT

pytestmark = pytest.mark.usefixtures("fresh_fleet", "fresh_graph")


@pytest.mark.slow  # starts servers
def test_techniques_in_a_job_with_servers(tmp_path):
    whole = {**MERGED, **CLIPPED, **RECOMPUTED}
    cases = [
        Case(train),
        Case(train, RECOMPUTED),
        Case(train, CLIPPED),
        Case(train, CLIPPED, servers=1),
        Case(train, MERGED),
        Case(train, whole),
        Case(train, {"gradient_clip": True, "gradient_clip_configs": {"value": 0.01}}),
        Case(train_by_every_call),
        Case(train_and_flush, {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 4}}),
        Case(train_in_half, {"amp": True}),
        Case(find_a_nan, {"stop_on_nan": True}),
        Case(train_a_program, {**CLIPPED, "recompute": True, "stop_on_nan": True}),
        Case(train, {**MERGED, "a_sync": True, "a_sync_configs": FRESH}, workers=1),
        Case(train, {**MERGED, "a_sync": True, "a_sync_configs": {"k_steps": 1}}, workers=1),
        Case(
            save_merged,
            {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 4}},
            folder=str(tmp_path),
        ),
    ]
    expected = [
        alone(EACH),
        alone(EACH),
        alone(EACH, **CLIPPED),
        alone(EACH, **CLIPPED),
        alone(PAIRS),
        alone(PAIRS, **CLIPPED),
        alone(EACH, gradient_clip=True, gradient_clip_configs={"value": 0.01}),
    ]
    assert not np.array_equal(expected[2]["rows"], expected[0]["rows"])  # the clip does something
    results = run_cases(served, cases)
    for worker, found in enumerate(results):
        for number, wanted in enumerate(expected):
            trained, updates, text, is_the_one = found[number]
            same(trained, wanted, 1e-12)
            merges = number in (4, 5)
            assert updates == ([False, True] * 2 if merges else [True] * 4)
            assert is_the_one
            check_table(text, cases[number])
        for name, value in found[0][0].items():  # the same bits
            np.testing.assert_array_equal(found[1][0][name], value)
        same(found[7], expected[0], 1e-12)
        flushed, count = found[8]
        assert count == 2 - worker
        same(flushed, alone([[(0, 0), (1, 0), (0, 1)]]), 1e-12)
        check_half(*found[9])
        same(found[9][3], results[0][9][3], 0.0)
        first, second, loaded = found[14]  # each worker has its own back
        same(loaded, first, 0.0)
        assert not np.array_equal(first["out.bias"], second["out.bias"])
    assert not np.array_equal(*(found[14][0]["out.bias"] for found in results))
    assert [found[10] for found in results] == [None, True]
    for number in (12, 13):  # async and geo
        same(results[0][number][0], alone(OF_ONE), 1e-12)
    for trained, types, techniques in (found[11] for found in results):
        clip = static.clip.GradientClipByGlobalNorm(CLIP["norm"])
        same(trained, a_program_alone(grad_clip=clip), 1e-7)
        assert types[-6:] == [
            *("send", "send", "send_barrier", "recv", "fetch_barrier", "stop_on_nan")
        ]
        for name in ("recompute", "gradient_clip", "stop_on_nan", "parameter_server"):
            assert name in techniques


def check_table(text: str, case: Case) -> None:
    """Check the rows that explain() prints."""
    text = text.partition("what this worker")[0]
    assert "2 worker(s)" in text
    for stage in ("grad_sync", "update", "param_sync"):
        assert stage in text
    assert "sync: push" in text
    assert "table(s)" in text
    merges = "gradient_merge" in case.settings
    sent = (7 * 5 + 5 + 5 + 1) * 8 / (2 if merges else 1)
    assert text.count(f" {sent:.0f} B ") == 2  # pushed, and pulled
    assert "the script's" in text
    assert f"on {case.servers}" in text
    for name in case.settings:
        if not name.endswith("_configs"):
            assert name in text


def check_half(first: Any, skipped: Any, losses: Any, last: Any, state: Any) -> None:
    """Check that all workers skip a step that overflows on one, and that training continues."""
    same(skipped, first, 0.0)
    assert losses[-1] < losses[1]
    assert not np.array_equal(last["rows"], first["rows"])
    assert state["bad_steps"] == 0
    assert state["good_steps"] == STEPS


WORKER = Path(__file__).parent / "workers" / "three_ways.py"


@pytest.mark.slow  # starts servers
def test_programs_merge_and_scale_in_a_job_with_servers():
    geo = {"a_sync": True, "a_sync_configs": {"k_steps": 1}}
    cases = [
        Case(train_a_program, MERGED),
        Case(train_a_program, {**MERGED, **CLIPPED, "recompute": True, "stop_on_nan": True}),
        Case(train_a_program, SCALED),
        Case(train_a_program, SCALED, overflow=(1, 1)),
        Case(train_a_program, {**SCALED, **MERGED}, optimizer="momentum"),
        Case(train_a_program, {**SCALED, **MERGED}),
        Case(train_a_program, {**SCALED, **MERGED}, overflow=(0, 1)),
        Case(train_a_program, {**MERGED, "a_sync": True, "a_sync_configs": FRESH}, workers=1),
        Case(train_a_program, {**MERGED, **geo}, workers=1, optimizer="sgd"),
    ]
    pairs = ((0, 1), (2, 3))
    clip = static.clip.GradientClipByGlobalNorm(CLIP["norm"])
    expected = [
        a_program_alone(groups=pairs),
        a_program_alone(groups=pairs, grad_clip=clip),
        a_program_alone(),
        a_program_alone(groups=((0,), (2,), (3,))),
        a_program_alone("momentum", groups=pairs),
        a_program_alone(groups=pairs),
        a_program_alone(groups=pairs[1:]),
    ]
    assert not np.allclose(expected[0]["table"], expected[2]["table"], rtol=0, atol=1e-4)
    results = run_cases(served, cases)
    for found in results:
        for number, wanted in enumerate(expected):
            same(found[number][0], wanted, 1e-7)
        assert found[3][0]["scale"] == 8.0  # one overflow is not enough to lower it
        merged, scaled = found[0][1], found[2][1]
        assert merged.count("send") == 2
        assert merged[-1] == "fill_constant"
        assert {"check_finite_and_unscale", "agree_on_overflow", "update_loss_scaling"} <= set(
            scaled
        )
        assert scaled[-5:] == ["send", "send", "send_barrier", "recv", "fetch_barrier"]
    for number, kind in ((7, "adagrad"), (8, "sgd")):
        same(results[0][number][0], a_program_alone(kind, pairs, workers=1), 1e-7)


@pytest.mark.slow  # starts jobs
def test_servers_all_reduce_and_one_process_agree(tmp_path):
    jobs = {
        "servers": ("--server_num", "1", "--worker_num", "2"),
        "all-reduce": ("--nproc_per_node", "2"),
        "alone": ("--nproc_per_node", "1"),
    }
    for kind, processes in jobs.items():
        done = subprocess.run(
            [sys.executable, "-m", "fleetx.launch", *processes, WORKER, kind, tmp_path / kind],
            cwd=tmp_path,
            env=warm_start.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    expected = np.load(tmp_path / "alone.0.npz")
    for name in ("servers.0", "servers.1", "all-reduce.0", "all-reduce.1"):
        same(np.load(tmp_path / f"{name}.npz"), expected, 1e-12)


# -- without processes ----------------------------------------------------------------------------
