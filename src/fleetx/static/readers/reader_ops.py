"""The ops and variables that represent readers in a program.

`create_py_reader` represents a reader, `create_double_buffer_reader` a double-buffered one, `read`
a point where a batch is read. The data itself comes from the `ReadPort`s in
`program.binding.readers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.readers.data_feeder import Slot


def append_reader(block: Block, name: str, queue: str, slots: Sequence[Slot]) -> None:
    """Append the op that creates the reader `name` of batches with these slots."""
    declare_reader(block, name)
    block.append_op(
        type="create_py_reader",
        inputs={"blocking_queue": [queue]},
        outputs={"Out": [name]},
        attrs={
            "shape_concat": [size for slot in slots for size in slot.shape],
            "ranks": [len(slot.shape) for slot in slots],
            "lod_levels": [slot.lod_level for slot in slots],
            "dtypes": [int(slot.dtype) for slot in slots],
            "need_check_feed": [int(slot.need_check_feed) for slot in slots],
        },
    )


def append_double_buffer(block: Block, name: str, underlying: str) -> None:
    """Append the op that creates the reader `name` on top of another one."""
    declare_reader(block, name)
    block.append_op(
        type="create_double_buffer_reader",
        inputs={"UnderlyingReader": [underlying]},
        outputs={"Out": [name]},
    )


def append_read(block: Block, reader: str, outputs: Sequence[Any]) -> None:
    """Append the op that reads the next batch into variables (or names)."""
    block.append_op(type="read", inputs={"Reader": [reader]}, outputs={"Out": list(outputs)})


def declare_reader(block: Block, name: str) -> None:
    """Create the variable of a reader that a program uses."""
    block.create_var(name=name, type=VarType.READER, persistable=True, stop_gradient=True)
