"""Several "machines" on one: network namespaces with addresses of their own, joined by a bridge.

Where namespaces are not allowed the machines are loopback addresses instead; then a machine is
"cut off" by stopping its processes, and the test says so.
"""

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from launching import Launch
from launching import consecutive_ports as free_neighbours


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
        """Stop machine `index` from answering, without a word to the others."""
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

    def __init__(self, name: str, network: int, count: int) -> None:
        super().__init__([f"10.213.{network}.{i + 1}" for i in range(count)])
        self._name = name
        self._names = [f"{name}{i}" for i in range(count)]

    def build(self) -> None:
        hub = f"{self._name}h"
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "hub", "type", "bridge")
        _ip("-n", hub, "link", "set", "hub", "up")
        for name, host in zip(self._names, self.hosts, strict=True):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "add", "net0", "type", "veth", "peer", name, "netns", hub)
            _ip("-n", hub, "link", "set", name, "master", "hub", "up")
            _ip("-n", name, "address", "add", f"{host}/24", "dev", "net0")
            _ip("-n", name, "link", "set", "net0", "up")

    def remove(self) -> None:
        for name in [*self._names, f"{self._name}h"]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def prefix(self, index: int) -> list[str]:
        return ["ip", "netns", "exec", self._names[index]]

    def started_port(self, workers: int) -> int:
        return 6170  # nobody else is in these namespaces

    def cut_off(self, index: int, launch: Launch) -> None:
        _ip("-n", f"{self._name}h", "link", "set", self._names[index], "down")

    def join_again(self, index: int, launch: Launch) -> None:
        _ip("-n", f"{self._name}h", "link", "set", self._names[index], "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def machines(count: int) -> Iterator[Machines]:
    """Build `count` machines, and remove them again."""
    number = os.getpid()
    namespaces = Namespaces(f"fx{number % 100000}", number % 250, count)
    problem = "there is no command ip"
    if shutil.which("ip") is not None:
        try:
            namespaces.build()
            yield namespaces
            return
        except subprocess.CalledProcessError as error:
            problem = error.stderr.strip()
        finally:
            namespaces.remove()
    warnings.warn(f"no network namespaces ({problem}): loopback addresses instead", stacklevel=2)
    yield Machines([f"127.0.0.{i + 1}" for i in range(count)])
