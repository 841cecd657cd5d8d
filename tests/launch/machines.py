"""Several "machines" on one: network namespaces with their own addresses, joined by a bridge.

Where namespaces are not allowed the machines are loopback addresses instead; then a machine is
"cut off" by stopping its processes, and the test says so.
"""

import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import namespaces
from launching import Launch

from ports import consecutive_ports as free_neighbours


class Machines:
    """Addresses, and how to run a command on the machine that has one."""

    def __init__(self, hosts: list[str]) -> None:
        self.hosts = hosts
        self.ips = ",".join(hosts)

    def prefix(self, index: int) -> list[str]:
        return []

    def started_port(self, workers: int) -> int:
        return free_neighbours(workers, self.hosts)

    def cut_off(self, index: int, launch: Launch) -> None:
        """Disconnect machine `index` without notice to the others."""
        children = f"/proc/{launch.pid}/task/{launch.pid}/children"
        with open(children) as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGSTOP)

    def join_again(self, index: int, launch: Launch) -> None:
        children = f"/proc/{launch.pid}/task/{launch.pid}/children"
        with open(children) as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGCONT)


class Namespaces(Machines):
    """Machines in network namespaces."""

    def __init__(self, group: namespaces.Machines) -> None:
        super().__init__(group.addresses)
        self._group = group

    def prefix(self, index: int) -> list[str]:
        return self._group.command(index, [])

    def started_port(self, workers: int) -> int:
        return 6170  # nobody else is in these namespaces

    def cut_off(self, index: int, launch: Launch) -> None:
        self._group.pull_plug(index)

    def join_again(self, index: int, launch: Launch) -> None:
        self._group.put_plug_back(index)


@contextmanager
def machines(count: int) -> Iterator[Machines]:
    """Build `count` machines, and remove them again."""
    with ExitStack() as stack:
        try:
            group = stack.enter_context(namespaces.machines(count, prefix="fxt"))
        except namespaces.NoNamespacesError as error:
            words = f"no network namespaces ({error}): loopback addresses instead"
            warnings.warn(words, stacklevel=2)
            yield Machines([f"127.0.0.{i + 1}" for i in range(count)])
        else:
            yield Namespaces(group)
