"""`py_reader` and `read_file`: readers as part of a program, Fluid's older way to feed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static import unique_name
from fleetx.static.block import Block
from fleetx.static.dtypes import VarType, convert_dtype
from fleetx.static.place import Place
from fleetx.static.program import default_main_program, default_startup_program
from fleetx.static.readers.data_feeder import Slot, slot_of
from fleetx.static.readers.program_reader import ProgramReader, ReadPort
from fleetx.static.variable import Variable


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ProgramReader:
    """Return a reader of batches with the given shapes (batch dimension included) and types.

    Reading always runs ahead in the background, by up to `capacity` batches; `use_double_buffer`
    only changes the name, as it does in Fluid.
    """
    levels = [0] * len(shapes) if lod_levels is None else list(lod_levels)
    if not len(shapes) == len(dtypes) == len(levels):
        raise ValueError(
            f"py_reader() takes one dtype and one lod_level per shape, but got {len(shapes)} "
            f"shapes, {len(dtypes)} dtypes and {len(levels)} lod_levels."
        )
    sizes = [tuple(-1 if dim is None else int(dim) for dim in shape) for shape in shapes]
    slots = [
        Slot(str(i), size, convert_dtype(dtype), level)
        for i, (size, dtype, level) in enumerate(zip(sizes, dtypes, levels, strict=True))
    ]
    return ProgramReader(_append_reader(name, use_double_buffer), slots, capacity)


def create_py_reader_by_data(
    capacity: int,
    feed_list: Sequence[Variable],
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ProgramReader:
    """Return a reader of batches that look like the given variables."""
    if not isinstance(feed_list, list):
        raise TypeError(f"feed_list should be a list of Variables, not {type(feed_list).__name__}.")
    slots = [slot_of(variable) for variable in feed_list]
    return ProgramReader(_append_reader(name, use_double_buffer), slots, capacity)


def read_file(reader: ProgramReader) -> Variable | list[Variable]:
    """Return the variables that hold the reader's next batch in every run of the program."""
    if not isinstance(reader, ProgramReader):
        raise TypeError(
            f"read_file() takes a reader made by py_reader(), not {type(reader).__name__}."
        )
    program = default_main_program()
    layer = unique_name.generate("read_file")
    outputs = [
        program.current_block().create_var(
            name=unique_name.generate(f"{layer}.tmp"),
            shape=slot.shape,
            dtype=slot.dtype,
            lod_level=slot.lod_level,
            stop_gradient=True,
            is_data=True,
        )
        for slot in reader.slots
    ]
    program.current_block().append_op(
        type="read", inputs={"Reader": [reader.name]}, outputs={"Out": outputs}
    )
    ReadPort(reader, [variable.name for variable in outputs]).attach(program)
    return outputs[0] if len(outputs) == 1 else outputs


def double_buffer(
    reader: ProgramReader, place: Place | None = None, name: str | None = None
) -> ProgramReader:
    """Return the reader itself: it reads ahead in the background already."""
    return reader


def _append_reader(name: str | None, use_double_buffer: bool) -> str:
    """Append the ops that mark a reader in both programs; return the name of its variable."""
    if name is not None:
        reader, buffer = f"{name}_reader", f"{name}_double_buffer"
    else:
        # All three are numbered, in this order, whichever is used.
        keys = ("lod_tensor_blocking_queue", "create_py_reader", "double_buffer")
        _, reader, buffer = (unique_name.generate(key) for key in keys)
    startup = default_startup_program().current_block()
    main = default_main_program().current_block()
    for block in (startup, main):
        _create_reader_var(block, reader)
    startup.append_op(type="create_py_reader", outputs={"Out": [reader]})
    if not use_double_buffer:
        return reader
    _create_reader_var(main, buffer)
    main.append_op(
        type="create_double_buffer_reader",
        inputs={"UnderlyingReader": [reader]},
        outputs={"Out": [buffer]},
    )
    return buffer


def _create_reader_var(block: Block, name: str) -> None:
    block.create_var(name=name, type=VarType.READER, persistable=True, stop_gradient=True)
