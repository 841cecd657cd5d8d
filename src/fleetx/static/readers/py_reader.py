"""`py_reader` and `read_file`: readers that are part of a program, the older API of Fluid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.readers.data_feeder import Slot, slot_of
from fleetx.static.readers.program_reader import ProgramReader, ReadPort
from fleetx.static.readers.reader_ops import (
    append_double_buffer,
    append_read,
    append_reader,
    declare_reader,
)
from fleetx.static.run.place import Place


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ProgramReader:
    """Return a reader of batches with the given shapes (batch dimension included) and types.

    A background thread always prefetches up to `capacity` batches; `use_double_buffer` only changes
    the name.
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
    return ProgramReader(_append_ops(name, slots, use_double_buffer), slots, capacity)


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
    return ProgramReader(_append_ops(name, slots, use_double_buffer), slots, capacity)


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
    append_read(program.current_block(), reader.name, outputs)
    ReadPort(reader, [variable.name for variable in outputs]).attach(program)
    return outputs[0] if len(outputs) == 1 else outputs


def double_buffer(
    reader: ProgramReader, place: Place | None = None, name: str | None = None
) -> ProgramReader:
    """Return the reader, with a double-buffer op in the program.

    Every reader prefetches anyway; `place` is accepted without effect.
    """
    buffer = unique_name.generate("create_double_buffer_reader") if name is None else name
    append_double_buffer(default_main_program().current_block(), buffer, reader.name)
    reader.name = buffer
    return reader


def _append_ops(name: str | None, slots: Sequence[Slot], use_double_buffer: bool) -> str:
    """Append the ops of a reader to both programs; return the name of its variable."""
    if name is not None:
        queue, reader, buffer = f"{name}_queue", f"{name}_reader", f"{name}_double_buffer"
    else:
        # All three names are generated, in this order, even if they are not used.
        keys = ("lod_tensor_blocking_queue", "create_py_reader", "double_buffer")
        queue, reader, buffer = (unique_name.generate(key) for key in keys)
    main = default_main_program().current_block()
    append_reader(default_startup_program().current_block(), reader, queue, slots)
    declare_reader(main, reader)
    if not use_double_buffer:
        return reader
    append_double_buffer(main, buffer, reader)
    return buffer


export_defined(globals())
