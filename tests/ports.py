"""Ports for the servers of tests: no two tests get the same, whichever processes they run in.

A port that was free a moment ago may be taken by the time a started process binds it. So ports are
handed out in turn, by a counter in a file that all tests of this machine share. They are neither
those that the system gives to connections by itself nor those that fleetrun chooses from.
"""

import fcntl
import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

_FIRST, _LAST = 5000, 10000


def consecutive_ports(count: int, hosts: Sequence[str] = ("127.0.0.1",)) -> int:
    """Return the first of `count` neighbouring ports that are free on all the hosts."""
    counter = Path(tempfile.gettempdir()) / f"fleetx-test-ports-{os.getuid()}"
    with counter.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        first = int(file.read() or _FIRST)
        for _ in range(_FIRST, _LAST, count):
            if first + count > _LAST:
                first = _FIRST
            if are_free(range(first, first + count), hosts):
                file.truncate(0)
                file.write(str(first + count))
                return first
            first += count
    raise AssertionError("no free ports")


def are_free(ports: Sequence[int], hosts: Sequence[str] = ("127.0.0.1",)) -> bool:
    """Return whether nobody listens at these ports."""
    sockets = []
    try:
        for host in hosts:
            sockets += [socket.create_server((host, port)) for port in ports]
    except OSError:
        return False
    finally:
        for sock in sockets:
            sock.close()
    return True


def free_ports(count: int) -> list[int]:
    """Return ports of this machine at which nobody listens."""
    first = consecutive_ports(count)
    return list(range(first, first + count))


def free_endpoints(count: int) -> list[str]:
    """Return addresses of this machine at which nobody listens."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]
