"""Serialization of samples for other workers: counts, then ids, then the values of each slot.

Both sides know the slots, so types are not sent.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetx.static.graph.dtypes import VarType
from fleetx.static.readers.data_feeder import Slot
from fleetx.static.readers.multi_slot import Instance

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def pack(instances: Sequence[Instance], slots: Sequence[Slot]) -> Bytes:
    """Serialize samples to an array of bytes."""
    ids = [each.ins_id.encode() for each in instances]
    counts = np.array(
        [[len(name), *map(len, each)] for name, each in zip(ids, instances, strict=True)],
        dtype=np.uint32,
    )
    parts = [np.int64(len(instances)).tobytes(), counts.tobytes(), *ids]
    parts += [b"".join(each[i] for each in instances) for i in range(len(slots))]
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def unpack(parcel: Bytes, slots: Sequence[Slot]) -> list[Instance]:
    """Deserialize samples."""
    data = memoryview(parcel.tobytes())
    number = int(np.frombuffer(data[:8], dtype=np.int64)[0])
    at = 8 + number * 4 * (1 + len(slots))
    counts = np.frombuffer(data[8:at], dtype=np.uint32).reshape(number, 1 + len(slots)).tolist()
    instances = []
    for row in counts:
        instance = Instance()
        instance.ins_id = bytes(data[at : at + row[0]]).decode()
        at += row[0]
        instances.append(instance)
    for i, slot in enumerate(slots, 1):
        code = "f" if slot.dtype == VarType.FP32 else "Q"
        size = array(code).itemsize
        for row, instance in zip(counts, instances, strict=True):
            end = at + row[i] * size
            instance.append(array(code, bytes(data[at:end])))
            at = end
    return instances
