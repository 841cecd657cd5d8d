"""The multi-slot text format: a line is a sample, with "<count> v1 v2 ..." for each slot in turn.

`MultiSlotFormat` parses lines and collates samples to feeds; `read_lines` yields the lines of a
file after the user's pipe command. Values stay packed until they are collated.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import subprocess
from array import array
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from fleetx.runtime import environment
from fleetx.static.errors import DataFormatError
from fleetx.static.graph.dtypes import VarType
from fleetx.static.readers.data_feeder import Feed, Slot
from fleetx.static.readers.lod_tensor import LoDTensor

_REMOTE = ("hdfs:", "afs:")


class Instance(list["array[Any]"]):
    """One sample: the packed values of each slot, and its id if lines have one."""

    __slots__ = ("ins_id",)

    ins_id: str


class MultiSlotFormat:
    """Parses lines for the given slots: float32 and int64, dense or (lod_level 1) sequences."""

    def __init__(self, slots: Sequence[Slot], leading_fields: int = 0) -> None:
        for slot in slots:
            if slot.dtype not in (VarType.FP32, VarType.INT64):
                raise ValueError(
                    f"Slot {slot.name!r} has type {slot.dtype}, but the multi-slot format holds "
                    "float32 and int64 only."
                )
        self.slots = list(slots)
        # Fields such as an instance id, "1 <text>" each, that come before the slots.
        self.leading_fields = leading_fields
        self._expected = [_dense_size(slot) for slot in slots]

    def parse(self, line: str) -> Instance:
        """Return the packed values of every slot; raise ValueError for a malformed line."""
        words = line.split()
        at = 0
        for _ in range(self.leading_fields):
            if words[at : at + 1] != ["1"] or len(words) < at + 2:
                raise ValueError('an id in the form "1 <text>" is missing at its beginning')
            at += 2
        instance = Instance()
        instance.ins_id = words[1] if self.leading_fields else ""
        for slot, expected in zip(self.slots, self._expected, strict=True):
            count = _count(words, at, slot)
            values = words[at + 1 : at + 1 + count]
            if len(values) < count:
                raise ValueError(
                    f"slot {slot.name!r} announces {count} values, but {len(values)} follow"
                )
            if expected is not None and count % expected:
                raise ValueError(
                    f"slot {slot.name!r} of shape {slot.shape} needs {expected} values, not {count}"
                )
            instance.append(_pack(values, slot))
            at += 1 + count
        return instance

    def feed(self, instances: Sequence[Instance]) -> Feed:
        """Collate samples to one batch."""
        return {
            slot.name: self._tensor(slot, [instance[i] for instance in instances])
            for i, slot in enumerate(self.slots)
        }

    def _tensor(self, slot: Slot, parts: list[array[Any]]) -> LoDTensor:
        packed = bytearray().join(parts)
        if slot.dtype == VarType.INT64:
            values = np.frombuffer(packed, "uint64").view("int64")
        else:
            values = np.frombuffer(packed, "float32")
        tensor = LoDTensor()
        if slot.lod_level:
            tensor.set(values.reshape(-1, 1), zero_copy=True)
            tensor.set_recursive_sequence_lengths([[len(part) for part in parts]])
            return tensor
        inner = slot.shape[1:] if slot.shape[:1] == (-1,) else slot.shape
        if not any(dim < 0 for dim in inner):  # samples with several rows lie one after another
            tensor.set(values.reshape(-1, *inner), zero_copy=True)
            return tensor
        if len({len(part) for part in parts}) != 1:
            raise DataFormatError(
                f"Slot {slot.name!r} has no sequences (lod_level 0), but the samples of a batch "
                f"hold different numbers of values: {sorted({len(part) for part in parts})}; "
                "pad them to one length, or declare the variable with lod_level=1."
            )
        tensor.set(values.reshape(len(parts), *inner), zero_copy=True)
        return tensor


def read_lines(path: str, pipe_command: str, download_cmd: str = "cat") -> Iterator[str]:
    """Yield the output lines of `pipe_command` on a file; .gz files are decompressed first.

    A remote file (hdfs:, afs:) is read by `download_cmd`, called with its name.
    """
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_opened(path, download_cmd))
        if pipe_command.strip() != "cat":
            source = stack.enter_context(_running(pipe_command, path, source))
        for line in source:
            yield line.decode("utf-8")


@contextlib.contextmanager
def _opened(path: str, download_cmd: str) -> Iterator[IO[bytes]]:
    if path.startswith(_REMOTE) and not os.path.exists(path):
        if download_cmd.strip() == "cat":
            raise ValueError(
                f"{path!r} is not a local file; set a download_cmd that writes it to its output."
            )
        with _running(f"{download_cmd} {shlex.quote(path)}", path) as source:
            yield source
        return
    with open(path, "rb") as file:
        if not path.endswith(".gz"):
            yield file
            return
        with _running("gzip -cd", path, file) as source:
            yield source


@contextlib.contextmanager
def _running(command: str, path: str, stdin: IO[bytes] | int = subprocess.DEVNULL) -> Iterator[Any]:
    """Run a shell command and yield its output; raise if it fails."""
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=stdin,
        stdout=subprocess.PIPE,
        env=environment.of_pipe_command(),
    )
    assert process.stdout is not None
    try:
        yield process.stdout
        process.stdout.close()
        code = process.wait()
    except BaseException:
        process.stdout.close()
        process.terminate()
        process.wait()
        raise
    # A command whose output is not read to the end gets SIGPIPE, which is not a failure.
    if code not in (0, -signal.SIGPIPE, 128 + signal.SIGPIPE):
        raise RuntimeError(f"The command {command!r} ended with exit code {code} on {path!r}.")


def _dense_size(slot: Slot) -> int | None:
    """Return the number of values of a row of a dense slot, None if it may vary."""
    inner = slot.shape[1:] if slot.shape[:1] == (-1,) else slot.shape
    return None if slot.lod_level or any(dim < 0 for dim in inner) else math.prod(inner)


def _count(words: list[str], at: int, slot: Slot) -> int:
    if at >= len(words):
        raise ValueError(f"it ends before slot {slot.name!r}")
    if not words[at].isdecimal():
        raise ValueError(f"{words[at]!r} is not a number of values for slot {slot.name!r}")
    if int(words[at]) == 0:
        raise ValueError(f"slot {slot.name!r} has no values; pad it with at least one")
    return int(words[at])


def _pack(values: list[str], slot: Slot) -> array[Any]:
    try:
        if slot.dtype == VarType.FP32:
            return array("f", map(float, values))
        # Feature signs use all 64 bits; they wrap to negative numbers in an int64 tensor.
        return array("Q", (int(value) & 0xFFFF_FFFF_FFFF_FFFF for value in values))
    except ValueError as error:
        raise ValueError(f"slot {slot.name!r} has a value that is not a number: {error}") from error
