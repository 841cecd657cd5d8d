"""Inference models in a folder, as in Paddle 1.x: `__model__` beside its parameters."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from fleetx.checkpoint.atomic import atomic_files
from fleetx.checkpoint.side_checksums import describe_beside
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.io.inference import deserialize_persistables, load_from_file
from fleetx.static.io.inference_program import (
    describe,
    fetch_names_of,
    inference_program,
    warn_of_auc,
)
from fleetx.static.io.scope_values import device_of, valid_program, value_of
from fleetx.static.io.variables import get_program_persistable_vars, load_vars, write_records
from fleetx.static.protobuf.serialize import program_from_bytes, program_to_bytes

_NAME = "__model__"


def _check(feeds: Any, targets: Any) -> tuple[list[str], list[Variable]]:
    feeds = [feeds] if isinstance(feeds, str) else feeds
    targets = [targets] if isinstance(targets, Variable) else targets
    if not isinstance(feeds, list | tuple) or not all(isinstance(name, str) for name in feeds):
        raise ValueError("feeded_var_names must be a list of names (str).")
    if not isinstance(targets, list | tuple) or not targets:
        raise ValueError("target_vars must be a list of at least one Variable.")
    if not all(isinstance(var, Variable) for var in targets):
        raise ValueError("target_vars must be a list of Variables.")
    return list(feeds), list(targets)


def save_inference_dir(
    dirname: str | os.PathLike[str],
    feeded_var_names: str | Sequence[str],
    target_vars: Variable | Sequence[Variable],
    executor: Any,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the inference model from the feeds to ``target_vars``; returns the names of the outputs.

    ``export_for_deployment=False`` writes the whole program as `__model__.main_program` instead;
    ``program_only`` omits the parameters.
    """
    program = valid_program(main_program)
    device_of(executor)
    model_name = os.path.basename(model_filename) if model_filename is not None else _NAME
    warn_of_auc(program)
    if export_for_deployment:
        feeds, targets = _check(feeded_var_names, target_vars)
        program = inference_program(program, feeds, targets)
        names = fetch_names_of(program)
    else:
        wanted = [target_vars] if isinstance(target_vars, Variable) else list(target_vars)
        names = [var.name for var in wanted]
        model_name += ".main_program"
    # Paddle's load_program_state reads every file below a folder of variables as one of them.
    beside = None if params_filename is None else describe_beside
    with atomic_files(dirname, beside) as files:
        if program_only:
            warnings.warn("program_only is set: the parameters are not saved.", stacklevel=2)
        else:
            variables = get_program_persistable_vars(program)
            params = None if params_filename is None else os.path.basename(params_filename)
            write_records(files, {var.name: value_of(var.name) for var in variables}, params)
        files.write(model_name, program_to_bytes(program))
    return names


def load_inference_dir(
    dirname: str | os.PathLike[str] | None,
    executor: Any,
    model_filename: str | bytes | None = None,
    params_filename: str | bytes | None = None,
    pserver_endpoints: Sequence[str] | None = None,
) -> list[Any]:
    """Load a model from a folder; returns ``[program, names of the feeds, fetch variables]``.

    With ``dirname`` None, the two filenames are the bytes of the program and of the variables.
    ``pserver_endpoints`` replaces the endpoints in the program's ops.
    """
    if dirname is None:
        if not isinstance(model_filename, bytes) or not isinstance(params_filename, bytes):
            raise ValueError("Without dirname, give model_filename and params_filename as bytes.")
        program = program_from_bytes(model_filename, source="the given bytes")
        deserialize_persistables(program, params_filename, executor)
    else:
        if not os.path.isdir(dirname):
            raise ValueError(f"There is no folder {os.fspath(dirname)!r} to load a model from.")
        path = os.path.join(dirname, os.path.basename(os.fsdecode(model_filename or _NAME)))
        program = program_from_bytes(load_from_file(path), source=path)
        params = os.path.basename(os.fsdecode(params_filename)) if params_filename else None
        variables = get_program_persistable_vars(program)
        load_vars(executor, dirname, program, variables, filename=params)
    for op in program.global_block().ops if pserver_endpoints else ():
        if op.has_attr("epmap"):
            op.set_attr("epmap", list(pserver_endpoints or ()))
    return describe(program)
