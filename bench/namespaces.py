"""Several "machines" on one, with a limited network between them: network namespaces connected by a
bridge, each behind a link of a given rate (tc's token bucket, both directions).

    with machines(2, mbit=200) as group:
        subprocess.run(group.command(0, ["ping", "-c1", group.addresses[1]]))
        print(group.sent(0))  # bytes that have left machine 0

Processes on one machine communicate over its loopback, which is not limited. Needs root and the
commands ip and, for limits, tc.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

LINK = "net0"
"""The name of a machine's link to the others."""

_numbers = itertools.count()


class NoNamespacesError(RuntimeError):
    """An error for a system that cannot create network namespaces."""


class Machines:
    """Namespaces with addresses; `machines` builds and removes them."""

    def __init__(self, name: str, count: int) -> None:
        self._hub = f"{name}-hub"
        self._names = [f"{name}-{i}" for i in range(count)]
        self.addresses = [f"10.213.0.{i + 1}" for i in range(count)]

    def command(self, machine: int, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command on a machine."""
        return ["ip", "netns", "exec", self._names[machine], *command]

    def environment(self, machine: int) -> dict[str, str]:
        """Return the variables that make torch and Gloo use the machine's link."""
        return {"GLOO_SOCKET_IFNAME": LINK, "TP_SOCKET_IFNAME": LINK}

    def sent(self, machine: int) -> int:
        """Return the number of bytes sent over a machine's link so far, headers included."""
        return self._counter(machine, "tx_bytes")

    def received(self, machine: int) -> int:
        """Return the number of bytes received over a machine's link so far, headers included."""
        return self._counter(machine, "rx_bytes")

    def _counter(self, machine: int, name: str) -> int:
        # /sys shows the links of the namespace it was mounted in; ip netns exec remounts it.
        return int(
            _run(*self.command(machine, ["cat", f"/sys/class/net/{LINK}/statistics/{name}"]))
        )

    def build(self, mbit: float | None) -> None:
        """Create namespaces, links and limits."""
        _run("ip", "netns", "add", self._hub)
        _run("ip", "-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._hub, "link", "set", "bridge", "up")
        for i, (name, address) in enumerate(zip(self._names, self.addresses, strict=True)):
            port = self._port(i)
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run(
                *("ip", "-n", name, "link", "add", LINK, "type", "veth"),
                *("peer", "name", port, "netns", self._hub),
            )
            _run("ip", "-n", self._hub, "link", "set", port, "master", "bridge", "up")
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", LINK)
            _run("ip", "-n", name, "link", "set", LINK, "up")
            if mbit is not None:
                # A queue shapes outgoing traffic: one at each end limits both directions.
                _limit(name, LINK, mbit)
                _limit(self._hub, port, mbit)

    def _port(self, machine: int) -> str:
        """Return the name of the other end of a machine's link."""
        return f"port{machine}"

    def pull_plug(self, machine: int) -> None:
        """Disconnect a machine from the network, without notice to the others."""
        _run("ip", "-n", self._hub, "link", "set", self._port(machine), "down")

    def put_plug_back(self, machine: int) -> None:
        """Reconnect a machine to the network."""
        _run("ip", "-n", self._hub, "link", "set", self._port(machine), "up")

    def remove(self) -> None:
        """Kill the processes of the machines and remove the machines, skipping what was not built.

        A namespace outlives its name while a process is in it, so processes are killed first.
        """
        for name in (*self._names, self._hub):
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for pid in found.stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it has already ended
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _limit(namespace: str, device: str, mbit: float) -> None:
    # A burst of 10 ms keeps timers from being the limit; a deep queue avoids packet loss.
    burst = max(16_000, int(mbit * 1e6 / 8 * 0.01))
    _run(
        *("tc", "-n", namespace, "qdisc", "add", "dev", device, "root"),
        *("tbf", "rate", f"{mbit}mbit", "burst", str(burst), "latency", "200ms"),
    )


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoNamespacesError(
            f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}; machines in "
            "network namespaces need a kernel with namespaces, veth and tbf, and the privilege to "
            "create them."
        )
    return done.stdout


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def machines(count: int, *, mbit: float | None = None, prefix: str = "fxb") -> Iterator[Machines]:
    """Build `count` machines connected by links of `mbit` Mbit/s; remove them at the end.

    They are removed on any exit of the block: an exception, Ctrl-C or SIGTERM.
    """
    if os.geteuid() != 0:
        raise NoNamespacesError("machines in network namespaces need root: run this as root.")
    needed = ("ip",) if mbit is None else ("ip", "tc")
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        raise NoNamespacesError(
            f"machines in network namespaces need the command {missing[0]}: install iproute2."
        )
    group = Machines(f"{prefix}-{os.getpid()}-{next(_numbers)}", count)
    # SIGTERM would end Python without the cleanup below; only the main thread can set a handler.
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _stop) if main else None
    try:
        group.build(mbit)
        yield group
    finally:
        group.remove()
        if main:
            signal.signal(signal.SIGTERM, before)
