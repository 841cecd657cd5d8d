"""Which place a machine of an elastic job gets, and which machines training waits for."""

import socket
from typing import Any

import pytest

from fleetx.launch.elastic_coordinator import Coordinator
from fleetx.launch.elastic_machines import Machines
from fleetx.launch.elastic_membership import Membership
from fleetx.launch.failure import Failure
from fleetx.launch.hang_detection import Idle
from fleetx.launch.job_layout import Node
from fleetx.launch.meeting import node_from_json, node_to_json
from fleetx.launch.records import INVALID
from fleetx.runtime.wire import Line
from waiting import wait_until

TICKET = {"machines": "2:3", "--elastic": True}


def node(number: int, workers: int = 2) -> Node:
    host = f"10.0.0.{number}"
    return Node(host, tuple(f"{host}:{6000 + i}" for i in range(workers)), ("",) * workers)


def join(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "join", "node": node_to_json(node(number)), "ticket": {**TICKET, **more}}


def test_machines_get_the_lowest_free_place():
    machines = Machines(TICKET, node(1), most=3)
    second, third = machines.enter(join(2)), machines.enter(join(3))
    assert (second.index, third.index, machines.count) == (1, 2, 3)
    assert machines.enter(join(4)) is None
    assert "one of 3 machines to leave (there are: 10.0.0.1, 10.0.0.2, 10.0.0.3)" in machines.full()
    machines.leave(second)
    fourth = machines.enter(join(4))
    assert fourth.index == 1
    assert [found.host for found in machines.nodes] == ["10.0.0.1", "10.0.0.4", "10.0.0.3"]
    machines.leave(second)  # again, as its connection closes later: the place has another owner
    assert machines.count == 3


def test_machine_with_other_settings_is_refused():
    machines = Machines(TICKET, node(1), most=3)
    assert machines.refusal(join(2)) is None
    assert "machines '2:3' on 10.0.0.1 and '2:4' on 10.0.0.2" in machines.refusal(
        join(2, machines="2:4")
    )
    other = {**join(2), "node": node_to_json(node(2, workers=3))}
    assert "another number of workers" in machines.refusal(other)


def test_unfinished_machines_are_those_that_still_train():
    machines = Machines(TICKET, node(1), most=3)
    second = machines.enter(join(2))
    assert list(machines.unfinished) == [second]
    machines.hear(second, {"type": "done"})
    assert list(machines.unfinished) == []


def test_training_waits_for_machines_not_for_workers():
    told: dict[int, list[dict[str, Any]]] = {}
    membership = Membership(
        4, 2, lambda number, message: told.setdefault(number, []).append(message), per_machine=2
    )
    for number in range(4):
        membership.enter(number, ("127.0.0.1", 1000 + number))
        membership.ready(number, "same")
    assert membership.generation == 1
    membership.lose(1)  # one worker of a machine: both machines are still there
    for number in (0, 2, 3):
        membership.ready(number, "same")
    assert (membership.generation, told[0][-1]["size"]) == (2, 3)
    membership.lose(2)
    membership.lose(3)  # the second machine
    membership.ready(0, "same")
    assert membership.generation == 2
    assert (membership.state.machines, membership.state.workers) == (1, (0,))
    membership.enter(2, ("127.0.0.1", 1002))
    membership.ready(2, "same")
    assert (membership.generation, told[2][-1]["fresh"]) == (3, [1])


NODE = {"host": "a", "endpoints": ["a:1"], "devices": [""], "servers": []}
FAILURE = Failure("exit", "a", "It failed.", code=1).to_json()


@pytest.mark.parametrize(
    ("read", "record"),
    [
        (node_from_json, {**NODE, "host": 3}),
        (node_from_json, {**NODE, "endpoints": "a:1"}),
        (node_from_json, {**NODE, "endpoints": [{}]}),
        (node_from_json, {"host": "a"}),
        (node_from_json, []),
        (Idle.from_json, {"seconds": "long"}),
        (Idle.from_json, {"seconds": float("nan")}),
        (Idle.from_json, {"counts": 1}),
        (Idle.from_json, {"frozen": "all"}),
        (Idle.from_json, {"other": 1}),
        (Failure.from_json, {**FAILURE, "sentence": None}),
        (Failure.from_json, {**FAILURE, "code": True}),
        (Failure.from_json, {**FAILURE, "when": float("inf")}),
        (Failure.from_json, {"kind": "exit"}),
    ],
)
def test_records_that_no_launcher_sends_are_refused(read: Any, record: Any) -> None:
    with pytest.raises(INVALID):
        read(record)


def test_records_are_read_as_they_were_written() -> None:
    idle = Idle(seconds=3, longest=0.5, frozen=("worker 1",), waits=True)
    assert Idle.from_json({**idle.to_json(), "frozen": ["worker 1"]}) == idle
    assert Failure.from_json(FAILURE).to_json() == FAILURE
    assert node_to_json(node_from_json(NODE)) == NODE


def test_coordinator_survives_numbers_that_are_none() -> None:
    """JSON has infinite numbers, and they are no numbers of workers or generations."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    machines = Machines(TICKET, node(1), most=3)
    coordinator = Coordinator(listener, b"secret", 30.0, Membership(1, 1, per_machine=1), machines)
    hello = {"type": "hello", "number": 0, "store": ["127.0.0.1", 1]}
    infinite = float("inf")
    try:
        for messages in (
            [{**hello, "number": infinite}],
            [{**hello, "store": ["127.0.0.1", infinite]}],
            [hello, {"type": "vote", "generation": infinite, "ok": True}],
            [{**join(2), "node": {**NODE, "host": {}}}],
            [{"type": "join"}],
        ):
            line = Line(socket.create_connection(address), b"secret", is_root=False)
            for message in messages:
                line.send(message)
            wait_until(lambda one=line: one.pump() is not None and one.closed, "the refusal")
        last = Line(socket.create_connection(address), b"secret", is_root=False)
        last.send(hello)
        last.send({"type": "ready", "card": ""})
        found: list[Any] = []
        wait_until(lambda: found.extend(last.pump()) or found, "an answer")
        last.close()
    finally:
        coordinator.close()
