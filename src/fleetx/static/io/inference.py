"""Inference models under a path prefix, as in Paddle 2.x.

A model is two files: `prefix.pdmodel` holds the program, `prefix.pdiparams` its variables.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fleetx.checkpoint.atomic import atomic_files, atomic_write
from fleetx.checkpoint.side_checksums import describe_beside, verify
from fleetx.exports import export_defined
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.io.inference_program import describe, inference_program, warn_of_auc
from fleetx.static.io.scope_values import device_of, valid_program, value_of
from fleetx.static.io.variables import (
    get_program_persistable_vars,
    load_vars,
    save_vars,
    write_records,
)
from fleetx.static.protobuf.serialize import program_from_bytes, program_to_bytes

_Variables = Variable | Sequence[Variable]


def _as_list(values: _Variables, name: str, error: type[Exception] = ValueError) -> list[Variable]:
    found = [values] if isinstance(values, Variable) else values
    if not isinstance(found, list | tuple) or not all(isinstance(v, Variable) for v in found):
        raise error(f"{name} must be a Variable or a list of Variables.")
    return list(found)


def normalize_program(
    program: Program, feed_vars: _Variables, fetch_vars: _Variables, **kwargs: Any
) -> Program:
    """Return a copy of ``program``, pruned to compute ``fetch_vars`` from ``feed_vars``."""
    if not isinstance(program, Program):
        raise TypeError(f"program must be a Program, not {type(program).__name__}.")
    feeds = [var.name for var in _as_list(feed_vars, "feed_vars", TypeError)]
    targets = _as_list(fetch_vars, "fetch_vars", TypeError)
    prune = not kwargs.get("skip_prune_program", False)
    warn_of_auc(program)
    return inference_program(program, feeds, targets, prune=prune)


def _normalized(feed_vars: _Variables, fetch_vars: _Variables, kwargs: dict[str, Any]) -> Program:
    feeds = _as_list(feed_vars, "feed_vars")
    targets = _as_list(fetch_vars, "fetch_vars")
    skip = kwargs.get("skip_prune_program", False)
    program = valid_program(kwargs.get("program"))
    return normalize_program(program, feeds, targets, skip_prune_program=skip)


def serialize_program(feed_vars: _Variables, fetch_vars: _Variables, **kwargs: Any) -> bytes:
    """Return the inference program (of ``program=``, or the default one) as bytes."""
    return program_to_bytes(_normalized(feed_vars, fetch_vars, kwargs))


def serialize_persistables(
    feed_vars: _Variables, fetch_vars: _Variables, executor: Any, **kwargs: Any
) -> bytes | None:
    """Return the variables of the inference program as the bytes of a combined file."""
    return serialize_variables(_normalized(feed_vars, fetch_vars, kwargs), executor)


def serialize_variables(program: Program, executor: Any) -> bytes | None:
    """Return all persistable variables of a program as the bytes of a combined file."""
    return save_vars(executor, None, program, get_program_persistable_vars(program))


def save_to_file(path: str, content: bytes) -> None:
    """Write ``content`` to a file atomically."""
    if not isinstance(content, bytes):
        raise ValueError(f"content must be bytes, not {type(content).__name__}.")
    with atomic_write(path, describe_beside) as stream:
        stream.write(content)


def load_from_file(path: str) -> bytes:
    """Return the content of a file, verified if there is a checksum beside it."""
    verify(path)
    with open(path, "rb") as stream:
        return stream.read()


def deserialize_program(data: bytes) -> Program:
    """Return the program in bytes made by :func:`serialize_program`."""
    return program_from_bytes(data, source="the given bytes")


def deserialize_persistables(program: Program, data: bytes | None, executor: Any) -> None:
    """Load bytes made by :func:`serialize_persistables` into the variables of ``program``."""
    if not isinstance(program, Program):
        raise TypeError(f"program must be a Program, not {type(program).__name__}.")
    variables = get_program_persistable_vars(program)
    if data is None and variables:
        raise ValueError(f"data is None, but the program has {len(variables)} variable(s) to load.")
    if variables:
        load_vars(executor, None, program, variables, filename=data)


def _prefix(path_prefix: Any) -> str:
    if not isinstance(path_prefix, str | os.PathLike):
        raise ValueError(f"path_prefix must be a path, not {type(path_prefix).__name__}.")
    prefix = os.fspath(path_prefix)
    if prefix.endswith("/"):
        raise ValueError(f"path_prefix {prefix!r} is a folder; add the name of the model to it.")
    return os.path.abspath(prefix)


def save_inference_model(
    path_prefix: str | os.PathLike[str],
    feed_vars: _Variables,
    fetch_vars: _Variables,
    executor: Any,
    **kwargs: Any,
) -> None:
    """Save the inference model from ``feed_vars`` to ``fetch_vars`` under a path prefix.

    Keywords: ``program`` (the default main program if absent), ``skip_prune_program``. Those of
    Paddle that concern its engine (``clip_extra``, ``legacy_format``) are accepted.
    """
    prefix = _prefix(path_prefix)
    for path in (prefix + ".pdmodel", prefix + ".pdiparams"):
        if os.path.isdir(path):
            raise ValueError(f"{path!r} is a folder, so no model can be saved under this name.")
    program = _normalized(feed_vars, fetch_vars, kwargs)
    device_of(executor)
    variables = get_program_persistable_vars(program)
    records = {var.name: value_of(var.name) for var in variables}
    folder, name = os.path.split(prefix)
    with atomic_files(folder, describe_beside) as files:
        write_records(files, records, name + ".pdiparams")
        files.write(name + ".pdmodel", program_to_bytes(program))


def _existing(folder: str, name: str, suffix: str) -> str:
    path = os.path.join(folder, name)
    return path + suffix if os.path.exists(path + suffix) else path


def load_inference_model(
    path_prefix: str | os.PathLike[str] | None, executor: Any, **kwargs: Any
) -> list[Any]:
    """Load a model; returns ``[program, names of the feeds, fetch variables]``.

    With ``model_filename`` and ``params_filename``, ``path_prefix`` is a folder; with
    ``path_prefix`` None, these two are the bytes of the program and of the variables.
    """
    for name in kwargs:
        if name not in ("model_filename", "params_filename"):
            raise ValueError(
                f"load_inference_model has no argument {name!r}; it takes model_filename and "
                "params_filename."
            )
    model, params = kwargs.get("model_filename"), kwargs.get("params_filename")
    if path_prefix is None:
        if model is None or params is None:
            raise ValueError(
                "Without path_prefix, give model_filename and params_filename as bytes."
            )
        program = deserialize_program(model)
        deserialize_persistables(program, params, executor)
        return describe(program)
    prefix = _prefix(path_prefix)
    folder = prefix if kwargs else os.path.dirname(prefix)
    if not os.path.isdir(folder):
        raise ValueError(f"There is no folder {folder!r} to load a model from.")
    if not kwargs:
        name = os.path.basename(prefix)
        model, params = f"{name}.pdmodel", f"{name}.pdiparams"
    model_path = _existing(folder, model or "__model__", ".pdmodel")
    program = program_from_bytes(load_from_file(model_path), source=model_path)
    variables = get_program_persistable_vars(program)
    if variables:
        filename = os.path.basename(_existing(folder, params, ".pdiparams")) if params else None
        load_vars(executor, folder, program, variables, filename=filename)
    return describe(program)


export_defined(globals())
