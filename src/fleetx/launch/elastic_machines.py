"""Which machines an elastic job has: a state machine without sockets or clocks.

A machine that joins gets the lowest free index, which determines the numbers of its workers. If the
maximum of --nnodes has been reached, it waits until another machine leaves or is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetx.launch.failure import Failure
from fleetx.launch.hang_detection import Idle
from fleetx.launch.job_layout import Node
from fleetx.launch.meeting import Ticket, difference, node_from_json
from fleetx.runtime.wire import Message


@dataclass
class Machine:
    """A machine other than the first."""

    index: int
    node: Node
    idle: Idle = Idle()
    is_done: bool = False
    """Whether all its workers have finished."""


class Machines:
    """The machines of a job; the record is kept by the first one."""

    def __init__(self, ticket: Ticket, first: Node, most: int) -> None:
        self._ticket = ticket
        self._most = most
        self._present: dict[int, Machine] = {}
        self.nodes: list[Node] = [first]
        """The machine that has, or last had, each index."""
        self.failures: list[Failure] = []
        """The failures and results that machines have reported."""

    @property
    def count(self) -> int:
        """The number of machines, the first included."""
        return 1 + len(self._present)

    @property
    def hosts(self) -> list[str]:
        """The addresses of the machines."""
        return [self.nodes[0].host, *(machine.node.host for machine in self._present.values())]

    @property
    def unfinished(self) -> Sequence[Machine]:
        """The machines whose workers still train."""
        return [machine for machine in list(self._present.values()) if not machine.is_done]

    def refusal(self, message: Message) -> str | None:
        """Return why a machine cannot join; None if it can."""
        node = node_from_json(message["node"])
        if len(node.endpoints) != len(self.nodes[0].endpoints):
            return f"Machine {node.host} has another number of workers than the first one."
        return difference(self._ticket, self.nodes[0].host, message["ticket"], node.host)

    def enter(self, message: Message) -> Machine | None:
        """Assign an index to a machine; None if all are taken."""
        index = next((i for i in range(1, self._most) if i not in self._present), None)
        if index is None:
            return None
        node = node_from_json(message["node"])
        # Indices are given in order, so those below this one are known.
        self.nodes[index : index + 1] = [node]
        self._present[index] = Machine(index, node)
        return self._present[index]

    def full(self) -> str:
        """Return what a machine without an index waits for."""
        return f"one of {self._most} machines to leave (there are: {', '.join(self.hosts)})"

    def hear(self, machine: Machine, message: Message) -> None:
        """Record what a machine reports."""
        if message["type"] == "alive":
            machine.idle = Idle.from_json(message["idle"])
        elif message["type"] == "done":
            machine.is_done = True
        elif message["type"] == "failed":
            self.failures.append(Failure.from_json(message["failure"]))

    def leave(self, machine: Machine) -> None:
        """Free the index of a machine that has left or is lost."""
        if self._present.get(machine.index) is machine:
            del self._present[machine.index]
