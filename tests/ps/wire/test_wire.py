"""The wire format: round trips of any tensors, and anything else refused with a reason."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Assembler, parts
from fleetx.ps.wire.messages import Header, Kind, Problem, WireError

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8]


def views(frames):
    return [memoryview(bytearray(frame)) for frame in frames]


def send(header, tensors):
    assembler = Assembler()
    found = [assembler.add("peer", views(frames)) for frames in parts(header, tensors)]
    assert found[:-1] == [None] * (len(found) - 1)
    return found[-1]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**32 - 1),
            st.sampled_from(DTYPES),
            st.lists(st.integers(0, 5), max_size=4),
        ),
        max_size=6,
    )
)
def test_small_bodies_arrive_as_sent(items):
    tensors = [(key, torch.randint(0, 99, shape).to(dtype)) for key, dtype, shape in items]
    message = send(Header(Kind.PUSH, request=7, step=3, rate=0.5), tensors)
    assert (message.header.request, message.header.step, message.header.rate) == (7, 3, 0.5)
    assert [key for key, _ in message.tensors] == [key for key, _ in tensors]
    for (_, sent), (_, got) in zip(tensors, message.tensors, strict=True):
        assert sent.dtype == got.dtype
        assert torch.equal(sent, got)


def test_a_large_body_goes_in_parts_that_may_repeat():
    tensors = [
        (0, torch.randn(3)),
        (1, torch.randn(3_000_001)),
        (2, torch.randn(5, dtype=torch.float64)),
        (3, torch.arange(70_001)),
    ]
    frames = parts(Header(Kind.PUSH, request=1), tensors)
    assert len(frames) == 15
    assert all(len(data) <= wire.MAX_PART for _, _, data in frames)
    assembler = Assembler()
    # A series with a hole, then all of it again: complete as soon as the hole is filled.
    for part in frames[:2] + frames[3:]:
        assert assembler.add("peer", views(part)) is None
    found = [assembler.add("peer", views(part)) for part in frames[:3]]
    assert found[:2] == [None, None]
    for (_, sent), (_, got) in zip(tensors, found[2].tensors, strict=True):
        assert torch.equal(sent, got)


def test_unfinished_messages_hold_bounded_memory():
    assembler = Assembler(max_bytes=20 << 20, max_messages=3)
    first = parts(Header(Kind.PUSH), [(0, torch.zeros(2 << 20)), (1, torch.zeros(1 << 18))])[0]
    for request in range(50):
        header = wire.unpack_header(first[0])
        header.request = request
        assembler.add("peer", views([header.pack(), *first[1:]]))
    header = wire.unpack_header(first[0])
    header.request, header.total = 51, 30 << 20
    with pytest.raises(WireError) as caught:
        assembler.add("peer", views([header.pack(), *first[1:]]))
    assert caught.value.problem == Problem.TOO_LARGE


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda h, s, d: [h, s], Problem.MALFORMED),
        (lambda h, s, d: [b"", s, d], Problem.MALFORMED),
        (lambda h, s, d: [b"HTTP" + h[4:], s, d], Problem.MALFORMED),
        (lambda h, s, d: [h[:4] + b"\x09\x00" + h[6:], s, d], Problem.VERSION),
        (lambda h, s, d: [h[:6] + b"\xff" + h[7:], s, d], Problem.MALFORMED),
        (lambda h, s, d: [h, s + b"x", d], Problem.MALFORMED),
        (lambda h, s, d: [h, s[:4] + b"\xff" + s[5:], d], Problem.MALFORMED),
        (lambda h, s, d: [h, s[:8] + b"\xff" * 8 + s[16:], d], Problem.TOO_LARGE),
        (lambda h, s, d: [h, s, bytes(d)[:-1]], Problem.MALFORMED),
        (lambda h, s, d: [h, s, bytes(wire.MAX_PART + 1)], Problem.TOO_LARGE),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(change, problem):
    ((header, specs, data),) = parts(Header(Kind.PUSH), [(0, torch.ones(4, 4))])
    with pytest.raises(WireError) as caught:
        Assembler().add("peer", views(change(header, specs, data)))
    assert caught.value.problem == problem


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_messages_raise_only_wire_errors(data):
    tensors = [(0, torch.ones(4, 4)), (9, torch.arange(3))]
    ((header, specs, body),) = parts(Header(Kind.PUSH), tensors)
    frames = [bytearray(header), bytearray(specs), bytearray(body)]
    for _ in range(data.draw(st.integers(1, 6))):
        frame = frames[data.draw(st.integers(0, 2))]
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        Assembler(max_bytes=1 << 24).add("peer", [memoryview(f) for f in frames])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_random_bytes_raise_only_wire_errors(frames):
    with pytest.raises(WireError):
        Assembler().add("peer", [memoryview(bytearray(f)) for f in frames])


def test_json_bodies_are_objects_of_bounded_size():
    value = {"a": [1, 2.5, "x"]}
    assert wire.read_json(send(Header(Kind.HELLO), wire.json_body(value)).tensors) == value
    for bad in (b"[1]", b"{", b"[" * 5000):
        with pytest.raises(WireError):
            wire.read_json([(0, torch.frombuffer(bytearray(bad), dtype=torch.uint8))])
    with pytest.raises(WireError):
        wire.read_json([(0, torch.ones(3))])
