"""Rendezvous of the workers of a group at one segment of shared memory.

Worker 0 creates it and publishes its location in the group's store; then each worker waits until
all have mapped it. All of them get the segment, or none.
"""

from __future__ import annotations

import os
import secrets

import torch.distributed as dist

from fleetx.kernels import shared_segment
from fleetx.kernels.shared_segment import Segment


class NotSharedError(RuntimeError):
    """The workers cannot share memory; the message says why."""


class ApartError(NotSharedError):
    """The workers are on different machines or of different users."""


def open_segment(store: dist.Store, rank: int, size: int, seconds: float) -> Segment:
    """Map a segment with all workers of a group; raise NotSharedError on all of them or on none."""
    places = _exchange(store, "place", rank, size, _place())
    if len(set(places)) > 1:
        raise ApartError("the workers are not on one machine, or belong to different users")
    if rank == 0:
        return _offer(store, size, seconds)
    return _accept(store, rank, size, seconds)


def _place() -> str:
    """Return what processes that can share memory have in common, or "!" and a reason."""
    reason = shared_segment.why_impossible()
    if reason is not None:
        return f"!{reason}"
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip()
    return f"{machine} {os.readlink('/proc/self/ns/pid')} {os.geteuid()}"


def _exchange(store: dist.Store, name: str, rank: int, size: int, answer: str) -> list[str]:
    """Return the answers of all workers; raise if one begins with "!"."""
    store.set(f"{name}/{rank}", answer)
    answers = [store.get(f"{name}/{each}").decode() for each in range(size)]
    for each, text in enumerate(answers):
        if text.startswith("!"):
            raise NotSharedError(f"worker {each}: {text[1:]}")
    return answers


def _offer(store: dist.Store, size: int, seconds: float) -> Segment:
    token = secrets.token_bytes(shared_segment.TOKEN_BYTES)
    try:
        file = shared_segment.create(size, token)
    except (OSError, ValueError) as error:
        store.set("segment", "!")
        return _join(store, 0, size, f"no memory can be shared: {error}")
    try:
        segment = Segment(file, 0, size, token, seconds)
        store.set("segment", f"{os.getpid()} {file} {token.hex()}")
        return _join(store, 0, size, segment)
    finally:
        os.close(file)


def _accept(store: dist.Store, rank: int, size: int, seconds: float) -> Segment:
    offer = store.get("segment").decode()
    if offer == "!":
        return _join(store, rank, size, "worker 0 has no memory to share")
    pid, number, token = offer.split()
    file = -1
    try:
        file = os.open(f"/proc/{int(pid)}/fd/{int(number)}", os.O_RDWR | os.O_CLOEXEC)
        segment = Segment(file, rank, size, bytes.fromhex(token), seconds)
    except (OSError, ValueError) as error:
        return _join(store, rank, size, f"the memory of worker 0 cannot be mapped: {error}")
    finally:
        if file >= 0:
            os.close(file)
    return _join(store, rank, size, segment)


def _join(store: dist.Store, rank: int, size: int, result: Segment | str) -> Segment:
    """Wait until all have mapped the segment; raise if one has not."""
    failed = isinstance(result, str)
    try:
        _exchange(store, "joined", rank, size, f"!{result}" if failed else "joined")
    except NotSharedError:
        if isinstance(result, Segment):
            result.leave()
        raise
    assert isinstance(result, Segment)
    result.watch()
    return result
