"""Whole training states: `path.pdparams`, `path.pdopt` and `path.pdmodel`.

`load` also takes a folder or a combined file written by save_vars, save_params, ...
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fleetx.checkpoint.atomic import atomic_files
from fleetx.checkpoint.file_errors import FormatError, MissingFileError
from fleetx.checkpoint.paddle_tensor import Record, read_tensors
from fleetx.checkpoint.pickle_reader import load_arrays
from fleetx.checkpoint.pickle_writer import dump_object
from fleetx.checkpoint.side_checksums import FOLDER, describe_beside
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.io.scope_values import check_value, device_of, put_values, savable, value_of
from fleetx.static.io.variables import (
    is_belong_to_optimizer,
    is_parameter,
    is_persistable,
    load_vars,
    read_folder,
)
from fleetx.static.protobuf.serialize import program_to_bytes
from fleetx.static.run.scope import Scope, global_scope


class UnknownVariableError(LookupError, RuntimeError):
    """A variable to load is not in the program."""


_SUFFIXES = (".pdparams", ".pdopt", ".pdmodel")


def _prefix(model_path: str | os.PathLike[str]) -> str:
    path = os.fspath(model_path)
    for suffix in _SUFFIXES:
        path = path.removesuffix(suffix)
    return path


def _arrays(variables: Iterable[Variable]) -> dict[str, np.ndarray]:
    return {var.name: value_of(var.name).array for var in variables}


def save(
    program: Program, model_path: str | os.PathLike[str], protocol: int = 4, **configs: Any
) -> None:
    """Save a program with all of its state under the prefix ``model_path``.

    ``protocol`` is that of the pickle in `.pdparams` and `.pdopt`: 2 (as Paddle 1.x writes), 3 or
    4.
    """
    folder, name = os.path.split(os.fspath(model_path))
    if not name:
        raise ArgumentError(f"model_path {os.fspath(model_path)!r} must end in the name of a file.")
    protocol = configs.get("pickle_protocol", protocol)
    if not isinstance(protocol, int) or not 2 <= protocol <= 4:
        raise ValueError(f"protocol must be 2, 3 or 4, not {protocol!r}.")
    parameters = _arrays(filter(is_parameter, program.list_vars()))
    optimizer = _arrays(filter(is_belong_to_optimizer, program.list_vars()))
    with atomic_files(folder or ".", describe_beside) as files:
        for suffix, values in ((".pdparams", parameters), (".pdopt", optimizer)):
            with files.open(name + suffix) as stream:
                dump_object(stream, values, protocol=protocol)
        files.write(name + ".pdmodel", program_to_bytes(program))


def _pick(
    values: Mapping[str, Any], variables: Iterable[Variable], source: str
) -> dict[str, Record]:
    records = {}
    for var in variables:
        if var.name not in values:
            raise ArgumentError(f"{source} has no variable {var.name!r}, which the program needs.")
        if not isinstance(values[var.name], np.ndarray):
            raise FormatError(source, f"{var.name!r} is not an array.")
        check_value(values[var.name], var, source)
        records[var.name] = Record(values[var.name], [])
    return records


def load(
    program: Program,
    model_path: str | os.PathLike[str],
    executor: Any = None,
    var_list: Iterable[Variable] | None = None,
) -> None:
    """Load the state of ``program`` from the prefix ``model_path``.

    Without a `.pdparams` file, ``model_path`` may be a folder of variables, or a combined file of
    exactly the variables ``var_list``; both need an executor.
    """
    prefix = _prefix(model_path)
    device = None if executor is None else device_of(executor)
    parameters = prefix + ".pdparams"
    if not os.path.exists(parameters):
        _load_variables(program, model_path, executor, var_list)
        return
    values = load_arrays(parameters)
    records = _pick(values, filter(is_parameter, program.list_vars()), parameters)
    others = list(filter(is_belong_to_optimizer, program.list_vars()))
    # Programs saved by Paddle 1.x do not mark Parameters, so these are among the others.
    records |= _pick(values, [var for var in others if var.name in values], parameters)
    others = [var for var in others if var.name not in values]
    if others:
        path = prefix + ".pdopt"
        if not os.path.exists(path):
            raise ArgumentError(f"There is no file {path}, but the program has optimizer state.")
        records |= _pick(load_arrays(path), others, path)
    put_values(records, device=device)


def _load_variables(
    program: Program,
    model_path: str | os.PathLike[str],
    executor: Any,
    var_list: Iterable[Variable] | None,
) -> None:
    path = os.fspath(model_path)
    if not os.path.exists(path):
        raise MissingFileError(f"There is neither {_prefix(path)}.pdparams nor {path}.")
    if executor is None:
        raise ValueError(f"An executor is needed to load {path}, which has no .pdparams file.")
    if os.path.isdir(path):
        wanted = program.list_vars() if var_list is None else var_list
        present = [v for v in wanted if os.path.isfile(os.path.join(path, v.name))]
        load_vars(executor, path, program, present)
        return
    if var_list is None:
        raise ValueError(f"var_list is needed to load the combined file {path}.")
    variables = list(var_list)
    known = {var.name for var in program.list_vars()}
    for var in variables:
        if var.name not in known:
            raise UnknownVariableError(f"Variable {var.name!r} is not in the program.")
    load_vars(executor, os.path.dirname(path), program, variables, filename=os.path.basename(path))


def load_program_state(
    model_path: str | os.PathLike[str], var_list: Iterable[Variable] | None = None
) -> dict[str, np.ndarray]:
    """Return the saved state as arrays by name, from any of the forms that :func:`load` takes."""
    path = os.fspath(model_path)
    prefix = _prefix(path)
    if os.path.exists(prefix + ".pdparams"):
        state = load_arrays(prefix + ".pdparams")
        if os.path.exists(prefix + ".pdopt"):
            state |= load_arrays(prefix + ".pdopt")
        return state
    names = None if var_list is None else sorted(savable(var_list))
    if os.path.isfile(path):
        if names is None:
            raise ValueError(f"var_list is needed to load the combined file {path}.")
        return {name: record.array for name, record in read_tensors(path, names).items()}
    if not os.path.isdir(path):
        raise MissingFileError(f"There is neither {prefix}.pdparams nor {path}.")
    if names is not None:
        return {name: record.array for name, record in read_folder(path, names)[0].items()}
    return _all_in_folder(path)


def _all_in_folder(path: str) -> dict[str, np.ndarray]:
    state = {}
    for root, folders, files in os.walk(path):
        if FOLDER in folders:
            folders.remove(FOLDER)
        for file in sorted(files):
            full = os.path.join(root, file)
            name = os.path.relpath(full, path)
            try:
                state[name] = read_tensors(full, [name])[name].array
            except FormatError as error:
                # A folder may hold other files, such as the program.
                warnings.warn(f"Skipped a file that is not a variable: {error}", stacklevel=3)
    return state


def program_state_dict(
    program: Program, mode: str = "all", scope: Scope | None = None
) -> dict[str, np.ndarray]:
    """Return copies of a program's values; ``mode`` is "param", "opt" or "all"."""
    predicates = {"all": is_persistable, "param": is_parameter, "opt": is_belong_to_optimizer}
    check_choice(mode, "mode", predicates, "program_state_dict")
    chosen = savable(filter(predicates[mode], program.list_vars()))
    return {name: value_of(name, scope).array.copy() for name in chosen}


def set_program_state(
    program: Program, state_dict: Mapping[str, Any], scope: Scope | None = None
) -> None:
    """Set the variables of ``program`` to the arrays of ``state_dict``; others are kept.

    The variables must have values already; shapes and types must agree with them.
    """
    target = scope or global_scope()
    records: dict[str, Record] = {}
    for var in filter(is_persistable, program.list_vars()):
        held = target.find_var(var.name)
        if held is None or held.value is None:
            raise ArgumentError(
                f"Variable {var.name!r} has no value; run the startup program first."
            )
        if var.name not in state_dict:
            continue
        array, old = np.array(state_dict[var.name]), value_of(var.name, target).array
        if array.size == old.size == 1:
            array = array.reshape(old.shape)  # a rate is [1] in Paddle 2.0, and [] in 2.5
        if array.shape != old.shape or array.dtype != old.dtype:
            raise ArgumentError(
                f"Variable {var.name!r} has shape {list(old.shape)} and type {old.dtype}; the new "
                f"value has {list(array.shape)} and {array.dtype}."
            )
        records[var.name] = Record(array, held.lod)
    unused = sorted(set(state_dict) - set(records))
    if unused:
        warnings.warn(f"ignored, not in the program: {', '.join(unused)}.", stacklevel=2)
    put_values(records, scope=target)
