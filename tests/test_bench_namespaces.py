"""Machines of the benchmarks: namespaces with a limited network, gone afterwards."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import LIMIT, wait_for_end

pytestmark = pytest.mark.slow  # starts jobs or servers

BENCH = Path(__file__).parent.parent / "bench"
SIZE = 1_000_000

RECEIVE = f"""
import socket
with socket.create_server(("0.0.0.0", 7000)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    left = {SIZE}
    while left:
        left -= len(connection.recv(65536))
    connection.sendall(b"k")
"""
SEND = f"""
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as connection:
    connection.sendall(bytes({SIZE}))
    assert connection.recv(1) == b"k"
"""
STAY = """
import subprocess
from namespaces import machines
with machines(1, prefix="fxbstay") as group:
    # The child itself tells its number: it is in the namespace then.
    subprocess.run(group.command(0, ["sh", "-c", "echo $$; exec sleep 1000"]))
"""


@pytest.fixture(scope="module")
def namespaces():
    spec = importlib.util.spec_from_file_location("namespaces", BENCH / "namespaces.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        with module.machines(1):
            pass
    except module.NoNamespacesError as error:
        pytest.skip(str(error))
    return module


def names():
    found = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    return {line.split()[0] for line in found.stdout.splitlines()}


def send(group):
    """Send SIZE bytes from machine 0 to machine 1."""
    receiver = subprocess.Popen(
        group.command(1, [sys.executable, "-c", RECEIVE]), stdout=subprocess.PIPE, text=True
    )
    assert receiver.stdout.readline() == "listening\n"
    sender = group.command(0, [sys.executable, "-c", SEND, group.addresses[1]])
    subprocess.run(sender, check=True)
    assert receiver.wait(LIMIT) == 0
    receiver.stdout.close()


def test_bytes_are_limited_and_counted(namespaces):
    with namespaces.machines(2, mbit=200) as group:
        before = group.sent(0), group.received(1), group.sent(1)
        send(group)
        sent, received, back = group.sent(0), group.received(1), group.sent(1)
        shaped = subprocess.run(
            group.command(0, ["tc", "qdisc", "show", "dev", namespaces.LINK]),
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    assert SIZE < sent - before[0] < 1.2 * SIZE
    assert SIZE < received - before[1] < 1.2 * SIZE
    assert back - before[2] < 0.2 * SIZE
    assert "tbf" in shaped
    assert "200Mbit" in shaped


def test_nothing_is_left_after_an_error(namespaces):
    made = []

    def use():
        with namespaces.machines(2) as group:
            made.append(group)
            stay = group.command(0, ["sh", "-c", "echo $$; exec sleep 1000"])
            child = subprocess.Popen(stay, stdout=subprocess.PIPE)
            made.append(child)
            assert child.stdout.readline()  # it is in the namespace now
            raise ZeroDivisionError

    before = names()
    with pytest.raises(ZeroDivisionError):
        use()
    assert made[1].wait(LIMIT) == -signal.SIGKILL
    made[1].stdout.close()
    assert not {name for name in names() - before if name.startswith(f"fxb-{os.getpid()}-")}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_a_signal(namespaces, number):
    process = subprocess.Popen(
        [sys.executable, "-c", STAY],
        env={**os.environ, "PYTHONPATH": str(BENCH)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    child = int(process.stdout.readline())
    process.send_signal(number)
    assert process.wait(LIMIT) != 0
    process.stdout.close()
    wait_for_end(child)
    assert not {name for name in names() if name.startswith(f"fxbstay-{process.pid}-")}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give up")
def test_without_root_it_says_so(namespaces, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(namespaces.NoNamespacesError, match="need root"), namespaces.machines(1):
        pass
