"""Messages in parts from hostile peers: memory is bounded, and none of it is uninitialised."""

import tracemalloc

import pytest
import torch

from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Assembler
from fleetx.ps.wire.messages import Header, Kind, Problem, WireError


def part(request, number, count, *, total, offset, size, specs=b""):
    header = Header(
        Kind.PUSH, request=request, part=number, parts=count, total=total, offset=offset
    )
    return [memoryview(bytearray(f)) for f in (header.pack(), specs, bytes([7]) * size)]


def described(size):
    return wire.pack_specs(wire.lay_out([(0, torch.zeros(size, dtype=torch.uint8))]))


@pytest.mark.parametrize(
    "second",
    [
        {"offset": 0, "size": 100},  # the same bytes twice, and the rest never
        {"offset": 600, "size": 400},  # a hole
        {"offset": 100, "size": 400},  # not up to the end
        {"offset": 50, "size": 950},  # overlapping
    ],
)
def test_parts_that_do_not_cover_the_body_are_refused(second):
    assembler = Assembler()
    first = part(1, 0, 2, total=1000, offset=0, size=100, specs=described(1000))
    assert assembler.add("peer", first) is None
    with pytest.raises(WireError) as caught:
        assembler.add("peer", part(1, 1, 2, total=1000, **second))
    assert caught.value.problem == Problem.MALFORMED


def test_a_part_does_not_move():
    assembler = Assembler()
    assembler.add("peer", part(1, 0, 3, total=1000, offset=0, size=100))
    with pytest.raises(WireError, match="at two places"):
        assembler.add("peer", part(1, 0, 3, total=1000, offset=100, size=100))


def test_a_peer_displaces_its_own_messages_only():
    assembler = Assembler(max_bytes=4000, max_peer_bytes=2000)
    honest = part(1, 0, 2, total=1000, offset=0, size=500, specs=described(1000))
    assert assembler.add("honest", honest) is None
    for request in range(20):
        lie = part(request, 0, 2, total=1900, offset=0, size=10)
        assert assembler.add(("liar", request % 3), lie) is None
    with pytest.raises(WireError) as caught:
        assembler.add("liar", part(0, 0, 2, total=2001, offset=0, size=10))
    assert caught.value.problem == Problem.TOO_LARGE
    message = assembler.add("honest", part(1, 1, 2, total=1000, offset=500, size=500))
    assert message is not None


def test_a_peer_without_a_session_sends_single_parts_only():
    assembler = Assembler()
    with pytest.raises(WireError) as caught:
        assembler.add("x", part(1, 0, 2, total=1 << 30, offset=0, size=10), limited=True)
    assert caught.value.problem == Problem.NEED_HELLO


def test_announced_bytes_are_not_taken_before_they_come():
    assembler = Assembler()
    tracemalloc.start()
    assembler.add("peer", part(1, 0, 2, total=1 << 30, offset=0, size=10))
    with pytest.raises(WireError):
        assembler.add("peer", part(1, 1, 2, total=1 << 30, offset=0, size=10))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after < 1 << 20
