"""Tables move between servers during training: same results, nothing lost or applied twice."""

import random
from pathlib import Path

import pytest
import torch
from moves import MovingJob, move_with_kills
from training import result

pytestmark = pytest.mark.slow  # starts servers and workers

STEPS = 40


def undisturbed(folder: Path, mode: str, settings: dict, steps: int = STEPS):
    with MovingJob(folder, 2) as job:
        job.train(steps, mode, settings)
        codes = job.end()
        assert codes == [0] * 4, job.text()
    return result(folder, 0)


@pytest.mark.parametrize("dense", ["adam", "sgd+clip"])
def test_the_same_bits_with_two_three_and_two_servers(tmp_path, dense):
    """Synchronous training does not notice that its tables have moved twice."""
    settings = {"dense": dense, "rows": "adagrad"}
    expected = undisturbed(tmp_path / "quiet", "sync", settings)
    with MovingJob(tmp_path / "moves", 2) as job:
        job.hold(5, 20)
        job.train(STEPS, "sync", settings)
        for number, (step, servers) in enumerate(((5, 3), (20, 2)), 1):
            job.wait_for_step(step)
            job.plan(servers)
            job.release(step)
            job.wait_for_generation(number)
        codes = job.end()
        assert codes == [0] * 9, job.text()
        assert "moved from 2 to 3" in Path(job.log).read_text()
    for worker in range(2):
        for name, value in result(tmp_path / "moves", worker).items():
            # The norm of all gradients is a sum over servers, which rounds by their number.
            rounding = 1e-12 if "clip" in dense else 0.0
            torch.testing.assert_close(value, expected[name], rtol=rounding, atol=rounding)


def test_kills_during_a_move_lose_nothing(tmp_path):
    """Of workers, of servers that hand over and of servers that take over, at random moments."""
    settings = {"dense": "adam", "rows": "adagrad"}
    steps = 40
    expected = undisturbed(tmp_path / "quiet", "sync", settings, steps)
    with MovingJob(tmp_path / "kills", 2) as job:
        job.hold(5, 20)
        job.train(steps, "sync", settings)
        move_with_kills(job, [(5, 3), (20, 2)], random.Random(5))
        ends = [process.end() for process in (*job.running, *job.servers[-1])]
        assert ends == [0] * 4, job.text()
    for worker in range(2):
        for name, value in result(tmp_path / "kills", worker).items():
            assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("mode", ["async", "geo", "half_async"])
def test_every_push_is_applied_once(tmp_path, mode):
    """Workers that do not keep step push the same rows before and after two moves."""
    with MovingJob(tmp_path / "job", 2) as job:
        job.hold(10, 30)
        job.count(60, mode)
        for number, (step, servers) in enumerate(((10, 3), (30, 2)), 1):
            job.wait_for_step(step)
            job.plan(servers)
            job.release(step)
            job.wait_for_generation(number)
        codes = job.end()
        assert codes == [0] * 9, job.text()
    # In each of 20 exchanges a geo worker sends half of what the servers do not have yet.
    pushes = 120.0 if mode != "geo" else 120 - 6 * (1 - 2.0**-20)
    for worker in range(2):
        found = (tmp_path / f"job/counted{worker}").read_text().split()
        assert [float(count) for count in found] == pytest.approx([pushes] * 2, abs=1e-6)
