"""Ports for the servers of tests, unique among all test processes of the machine.

A free port may be taken before a started process binds it. Ports are therefore assigned in turn, by
a counter in a file that all tests of this machine share. They are outside the ephemeral port range
and outside the range that fleetrun chooses from.
"""

import fcntl
import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

_FIRST, _LAST = 5000, 10000


def consecutive_ports(count: int, hosts: Sequence[str] = ("127.0.0.1",)) -> int:
    """Return the first of `count` consecutive ports that are free on all hosts."""
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
    """Return whether nothing listens on these ports."""
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
    """Return free ports of this machine."""
    first = consecutive_ports(count)
    return list(range(first, first + count))


def free_endpoints(count: int) -> list[str]:
    """Return addresses of this machine with free ports."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]
