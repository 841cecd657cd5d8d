"""Which checkpoints stay, and what a crash while one is removed leaves."""

import multiprocessing
import os
import signal
import sys

import pytest

from fleetx.fleet.saving import checkpoints
from fleetx.fleet.saving.retention import Retention

_fork = multiprocessing.get_context("fork")


def test_the_newest_and_every_so_manieth_stay(tmp_path):
    for step in range(12):
        checkpoints.save(tmp_path, {"step": step}, keep=2, every=4)
    assert list(checkpoints.numbered(tmp_path)) == [0, 4, 8, 10, 11]
    checkpoints.save(tmp_path, {"step": 12}, keep=1)
    assert list(checkpoints.numbered(tmp_path)) == [12]


def test_damaged_checkpoints_do_not_displace_whole_ones():
    whole = {1, 2, 5}
    assert Retention(keep=1).outdated(range(9), whole.__contains__) == [0, 1, 2, 3, 4]
    assert Retention(keep=2).outdated(range(9), whole.__contains__) == [0, 1]
    assert Retention(keep=4).outdated(range(9), whole.__contains__) == []
    assert Retention(keep=1, every=2).outdated(range(9), whole.__contains__) == [1, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": 0}, "keep must be a whole number of at least 1, not 0"),
        ({"keep": "3"}, "keep must be a whole number of at least 1, not '3'"),
        ({"every": 0}, "every must be None or a whole number of at least 1, not 0"),
        ({"every": 1.5}, "every must be None or a whole number of at least 1, not 1.5"),
    ],
)
def test_bad_settings_are_errors(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        checkpoints.save(tmp_path, {"step": 1}, **settings)
    assert checkpoints.numbered(tmp_path) == {}


def _save_and_die(root, deletion):
    """Save, and be killed before so many files or folders of the old checkpoint are removed."""
    seen = 0

    def hook(event, arguments):
        nonlocal seen
        if event in ("os.remove", "os.rmdir"):
            seen += 1
            if seen == deletion:
                os.kill(os.getpid(), signal.SIGKILL)

    published = checkpoints.LocalStore.publish

    def publish(*arguments):
        published(*arguments)
        sys.addaudithook(hook)

    checkpoints.LocalStore.publish = publish
    checkpoints.save(root, {"step": 1}, keep=1)


@pytest.mark.parametrize("deletion", [1, 2, 3, 4, 5])
def test_a_crash_while_one_is_removed_leaves_no_half_checkpoint(tmp_path, deletion):
    checkpoints.save(tmp_path, {"step": 0})
    process = _fork.Process(target=_save_and_die, args=(tmp_path, deletion))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert list(checkpoints.numbered(tmp_path)) == [1]
    assert checkpoints.load(tmp_path) == {"step": 1}
    checkpoints.save(tmp_path, {"step": 2}, keep=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "checkpoint.2"]
