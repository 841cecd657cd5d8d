"""Connections of launchers: messages that are not framed, bounded and authenticated close them."""

import contextlib
import json
import random
import socket

import pytest

from fleetx.runtime.wire import LONGEST, Line, secret_of
from waiting import wait_until


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        two, _ = listener.accept()
    return one, two


@pytest.fixture
def lines():
    made = []

    def make(root=b"s" * 32, member=b"s" * 32):
        one, two = tcp_pair()
        made[:] = [Line(two, root, is_root=True), Line(one, member, is_root=False)]
        return made

    yield make
    for line in made:
        line.close()


def test_messages_arrive_in_both_directions(lines):
    root, member = lines()
    for number in range(5):
        member.send({"type": "join", "number": number})
    root.send({"type": "start", "text": "x" * 500_000})
    joins, starts = [], []

    def both():
        joins.extend(root.pump())
        starts.extend(member.pump())
        return len(joins) == 5 and starts

    wait_until(both, "all messages")
    assert [message["number"] for message in joins] == [0, 1, 2, 3, 4]
    assert len(starts[0]["text"]) == 500_000
    assert root.is_verified
    with pytest.raises(ValueError, match="at most"):
        root.send({"type": "x", "text": "x" * LONGEST})


def test_another_secret_is_refused_before_anything_is_parsed(lines):
    root, member = lines(member=b"t" * 32)
    member.send({"type": "join"})
    wait_until(lambda: not member.pump() and not root.pump() and root.closed, "the end")
    assert not root.is_verified


def hostile(generator):
    mark = b"FXL3" + generator.randbytes(16)
    return generator.choice(
        [
            b"[" * 200_000,
            b'{"type": "join"}\n',
            b"GET / HTTP/1.1\r\n\r\n",
            mark + b"[" * 200_000,
            mark + (1 << 31).to_bytes(4, "little") + bytes(200_000),
            mark + (5000).to_bytes(4, "little") + bytes(32) + b"[" * 200_000,
            generator.randbytes(generator.randrange(1, 5000)),
        ]
    )


def test_whatever_a_stranger_sends_ends_the_line_without_an_error():
    generator = random.Random(3)
    for _ in range(60):
        one, two = tcp_pair()
        root = Line(two, is_root=True)
        one.setblocking(False)
        data = hostile(generator)
        with contextlib.suppress(OSError):  # closed, or more than its buffers hold
            one.sendall(data)
        one.close()
        messages = []
        wait_until(lambda root=root, m=messages: m.extend(root.pump()) or root.closed, "the end")
        assert messages == []


def test_deep_json_of_a_member_ends_the_line(lines):
    root, member = lines()
    member._unsent.append(b"[" * 200_000)
    member.send({"type": "join"})
    wait_until(lambda: not member.pump() and not root.pump() and root.closed, "the end")


def received(middle, size, sender):
    """Return so many bytes of a line, which sends when it is called."""
    data = b""

    def complete():
        nonlocal data
        assert sender.pump() == []
        with contextlib.suppress(BlockingIOError):
            data += middle.recv(1000)
        return len(data) >= size

    wait_until(complete, f"{size} bytes")
    assert len(data) == size
    return data


def test_frames_cannot_be_changed_repeated_or_reflected():
    for attack in ("change", "repeat", "reflect"):
        one, middle_one = tcp_pair()
        middle_two, two = tcp_pair()
        root, member = Line(two, is_root=True), Line(one, is_root=False)
        middle_one.setblocking(False)
        middle_two.setblocking(False)
        middle_two.sendall(received(middle_one, 20, member))
        middle_one.sendall(received(middle_two, 20, root))
        member.send({"type": "join"})
        frame = received(middle_one, 36 + len(json.dumps({"type": "join"})), member)
        if attack == "change":
            middle_two.sendall(frame[:-2] + b"x" + frame[-1:])
        elif attack == "repeat":
            middle_two.sendall(frame + frame)
        else:
            middle_one.sendall(frame)
        victim = member if attack == "reflect" else root
        got = []
        wait_until(lambda v=victim, g=got: g.extend(v.pump()) or v.closed, attack)
        assert len(got) == (attack == "repeat")
        for each in (root, member, middle_one, middle_two):
            each.close()


def test_a_job_without_a_secret_has_none():
    assert secret_of(b"", b"") == b""
    assert secret_of(b"a") != secret_of(b"b")
