"""Merging of lines: records with the same instance id become one sample."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby

from fleetx.static.readers.data_feeder import Slot
from fleetx.static.readers.multi_slot import Instance

_logger = logging.getLogger(__name__)


def merge_by_id(records: Sequence[Instance], slots: Sequence[Slot], size: int) -> list[Instance]:
    """Merge the records of each id; a slot takes the values of the record that has non-zero ones.

    An id is dropped if it does not have `size` records (0: any number), or if two of them have
    non-zero values for the same slot.
    """
    merged, dropped = [], 0
    for name, group in groupby(sorted(records, key=lambda r: r.ins_id), key=lambda r: r.ins_id):
        parts = list(group)
        joined = Instance(parts[0])
        joined.ins_id = name
        clash = None
        for i, slot in enumerate(slots):
            filled = [part[i] for part in parts if any(part[i])]
            clash = slot.name if len(filled) > 1 else clash
            joined[i] = filled[0] if filled else parts[0][i]
        if clash is None and (size == 0 or len(parts) == size):
            merged.append(joined)
        else:
            dropped += len(parts)
    if dropped:
        _logger.warning("%d of %d records were dropped by merging.", dropped, len(records))
    return merged
