"""save_vars, save_params, save_persistables and their counterparts, in Paddle's tensor format.

Without `filename` every variable is a separate file in `dirname`; with it, one combined file
holds them in the order of their names. With neither, saving returns bytes and loading takes them in
place of `filename`.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

from fleetx.checkpoint.atomic import AtomicFiles, atomic_files, atomic_write, inside
from fleetx.checkpoint.file_errors import MissingFileError
from fleetx.checkpoint.paddle_tensor import Record, parse_tensors, read_tensors, write_tensor
from fleetx.checkpoint.side_checksums import describe_beside
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.io.scope_values import (
    check_value,
    device_of,
    put_values,
    savable,
    valid_program,
    value_of,
)

# Paddle's wording, which scripts recognise.
NOTHING_TO_SAVE = (
    "no variable in your model, please ensure there are any variables in your model to save"
)

_NOT_DATA = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER)


def is_parameter(var: Variable) -> bool:
    """Return whether a variable is a Parameter."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Return whether a variable keeps its value between runs and can be saved."""
    return var.persistable and var.type not in _NOT_DATA


def is_belong_to_optimizer(var: Variable) -> bool:
    """Return whether a variable is part of the training state without being a Parameter."""
    return not is_parameter(var) and not var.need_check_feed and is_persistable(var)


def get_program_parameter(program: Program) -> list[Variable]:
    """Return the Parameters of a program."""
    return [var for var in program.list_vars() if is_parameter(var)]


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """Return the variables of a program that keep their values between runs."""
    return [var for var in program.list_vars() if is_persistable(var)]


def get_parameter_value(para: Variable, executor: Any) -> np.ndarray:
    """Return the value of a Parameter."""
    if not is_parameter(para):
        raise ArgumentError(f"{getattr(para, 'name', para)!r} is not a Parameter.")
    return value_of(para.name).array.copy()


def get_parameter_value_by_name(
    name: str, executor: Any, program: Program | None = None
) -> np.ndarray:
    """Return the value of the Parameter with this name."""
    return get_parameter_value(valid_program(program).global_block().var(name), executor)


def _chosen(
    main_program: Any,
    variables: Iterable[Variable] | None,
    predicate: Callable[[Variable], bool] | None,
) -> dict[str, Variable]:
    program = valid_program(main_program)
    if variables is None:
        variables = [v for v in program.list_vars() if predicate is None or predicate(v)]
    return savable(variables)


# -- saving
# -------------------------------------------------------------------------------------------
def write_combined(stream: BinaryIO, records: Mapping[str, Record]) -> None:
    """Write the content of a combined file: the records in the order of their names."""
    for name in sorted(records):
        write_tensor(stream, *records[name])


def write_records(
    files: AtomicFiles, records: Mapping[str, Record], filename: str | None = None
) -> None:
    """Write records to one combined file, or to a file each; warn if there are none."""
    if not records:
        warnings.warn(NOTHING_TO_SAVE, stacklevel=3)
    elif filename is not None:
        with files.open(filename) as stream:
            write_combined(stream, records)
    else:
        for name, record in records.items():
            with files.open(name) as stream:
                write_tensor(stream, *record)


def save_vars(
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | None = None,
    vars: Iterable[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save variables: those in ``vars``, else those of the program that ``predicate`` accepts.

    Returns the bytes of a combined file if neither ``dirname`` nor ``filename`` is given.
    """
    chosen = _chosen(main_program, vars, predicate)
    if not chosen:
        warnings.warn(NOTHING_TO_SAVE, stacklevel=2)
        return None
    records = {name: value_of(name) for name in chosen}
    if dirname is None and filename is None:
        memory = io.BytesIO()
        write_combined(memory, records)
        return memory.getvalue()
    if filename is not None:
        with atomic_write(os.path.join(dirname or "", filename), describe_beside) as stream:
            write_combined(stream, records)
        return None
    assert dirname is not None
    # Without checksums: Paddle's load_program_state reads every file below such a folder as a
    # variable.
    with atomic_files(dirname) as files:
        write_records(files, records)
    return None


def _save_those(
    predicate: Callable[[Variable], bool],
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save all variables that keep their values: Parameters, optimizer state, learning rates."""
    return save_vars(executor, dirname, main_program, None, predicate, filename)


_PARAMETERS_SAVED = "Save the Parameters of a program; see :func:`save_vars`."
save_params = with_first(_save_those, "save_params", is_parameter, doc=_PARAMETERS_SAVED)
save_persistables = with_first(_save_those, "save_persistables", is_persistable)


# -- loading
# ------------------------------------------------------------------------------------------
def read_folder(
    dirname: str | os.PathLike[str], names: Iterable[str]
) -> tuple[dict[str, Record], dict[str, str]]:
    """Read one file per variable; returns the records and the path of each."""
    paths = {name: str(inside(dirname, name)) for name in names}
    missing = [name for name, path in paths.items() if not os.path.isfile(path)]
    if missing:
        shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise MissingFileError(
            f"{os.fspath(dirname)} has no file for {len(missing)} variable(s): {shown}."
        )
    return {name: read_tensors(path, [name])[name] for name, path in paths.items()}, paths


def _read(
    dirname: str | os.PathLike[str] | None, filename: str | bytes | None, names: list[str]
) -> tuple[dict[str, Record], dict[str, str]]:
    if filename is None or filename == "":
        if dirname is None:
            raise ValueError("load_vars needs dirname, filename or both.")
        return read_folder(dirname, names)
    if dirname is None and isinstance(filename, bytes):
        source = "the given bytes"
        return parse_tensors(filename, names, source=source), dict.fromkeys(names, source)
    path = os.path.join(dirname or "", os.fsdecode(filename))
    if not os.path.isfile(path):
        raise MissingFileError(f"There is no file {path} to load {len(names)} variable(s) from.")
    return read_tensors(path, names), dict.fromkeys(names, path)


def load_vars(
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | None = None,
    vars: Iterable[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load variables saved by :func:`save_vars`: ``vars``, or those that ``predicate`` accepts.

    Everything is read and compared with the program before the first variable changes. With
    ``dirname=None``, ``filename`` may be the bytes of a combined file.
    """
    device = device_of(executor)
    chosen = _chosen(main_program, vars, predicate)
    if not chosen:
        return
    records, sources = _read(dirname, filename, sorted(chosen))
    for name, var in chosen.items():
        check_value(records[name].array, var, sources[name])
    put_values(records, device=device)


def _load_those(
    predicate: Callable[[Variable], bool],
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load all variables of a program that keep their values; see :func:`load_vars`."""
    load_vars(executor, dirname, main_program, None, predicate, filename)


_PARAMETERS_LOADED = "Load the Parameters of a program; see :func:`load_vars`."
load_params = with_first(_load_those, "load_params", is_parameter, doc=_PARAMETERS_LOADED)
load_persistables = with_first(_load_those, "load_persistables", is_persistable)
