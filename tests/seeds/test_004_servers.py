"""The program for parameter servers: under fleetrun, and by processes that say who they are."""

import re

import pytest
from seed_programs import EXAMPLES, run, saved

from ports import free_endpoints

pytestmark = pytest.mark.slow  # starts jobs or servers

FOLDER = EXAMPLES / "004_parameter_servers"
LINE = re.compile(
    r"^Pass (\d+), cost = (\d+\.\d{6}), auc = (\d\.\d{6}), batch_auc = (\d\.\d{6})$", re.MULTILINE
)


def lines_of(text):
    return [(int(number), float(cost)) for number, cost, _, _ in LINE.findall(text)]


def costs_of(text, passes):
    """Return the costs that were printed, eight in each pass."""
    found = lines_of(text)
    assert [number for number, _ in found] == [i // 8 for i in range(8 * passes)], text[-2000:]
    return [cost for _, cost in found]


def test_synchronous_training_under_the_launcher(tmp_path):
    command = ["fleetrun", "--server_num", 2, "--worker_num", 2, FOLDER / "train.py"]
    run(tmp_path, *command, "--passes", 4)
    for rank in range(2):
        costs = costs_of((tmp_path / "log" / f"workerlog.{rank}").read_text(), 4)
        assert sum(costs[-8:]) < sum(costs[:8])
    names = set(saved(tmp_path / "output" / "persistables"))
    assert {f"fc_{i}.{kind}_0" for i in range(3) for kind in "wb"} <= names
    assert "__model__" in saved(tmp_path / "output" / "inference")


def test_other_settings_and_roles_by_hand(tmp_path):
    options = ("--asynchronous", "--split_method", "HashName", "--keep_whole", "--passes", 4)
    endpoints = ",".join(free_endpoints(2))
    run(tmp_path, "sh", FOLDER / "by_hand.sh", *options, WORKERS="2", ENDPOINTS=endpoints)
    for rank in range(2):
        # How much asynchronous workers learn in 32 steps depends on who comes when: with the same
        # batch in each pass, costs that change show that gradients went to servers and came back.
        costs = costs_of((tmp_path / "log" / f"worker.{rank}").read_text(), 4)
        assert costs[:8] != costs[-8:]
