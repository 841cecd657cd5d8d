"""Models saved by FleetX or Paddle: `__model__` with parameters, `.pdmodel` + `.pdiparams`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.side_checksums import verify
from fleetx.serving.engines.engine import Array, Engine
from fleetx.serving.model_files import PROGRAM, kind_of
from fleetx.serving.tensor_spec import TensorSpec
from fleetx.static import Executor, Program, Scope, Variable, VarType, scope_guard
from fleetx.static.graph.dtypes import dtype_name
from fleetx.static.graph.op_registry import get_op, has_op
from fleetx.static.io import feed_names_of, fetch_names_of
from fleetx.static.io.variables import get_program_persistable_vars, load_vars
from fleetx.static.protobuf.serialize import program_from_bytes

_COMBINED = "__params__"
# Ops with side effects that only mark, check or show values.
_HARMLESS = ("feed", "fetch", "assert", "print", "stop_on_nan")


def load(path: Path, threads: int | None) -> Engine:
    """Load a program and its variables into a separate scope."""
    if threads is not None:
        torch.set_num_threads(threads)
    verify(path)
    program = program_from_bytes(path.read_bytes(), source=str(path))
    _refuse_side_effects(path, program)
    feeds, fetches = feed_names_of(program), fetch_names_of(program)
    if not feeds or not fetches:
        raise FormatError(
            str(path),
            "does not declare its inputs and outputs; save it with save_inference_model.",
        )
    variables = get_program_persistable_vars(program)
    files, combined = _parameter_files(path, [var.name for var in variables])
    scope, executor = Scope(), Executor()
    with scope_guard(scope):
        load_vars(executor, path.parent, program, variables, filename=combined)
    block = program.global_block()
    inputs = tuple(_spec(path, block.var(name)) for name in feeds)
    outputs = tuple(_spec(path, block.var(name)) for name in fetches)
    runner = _Runner(program, executor, scope, feeds, fetches)
    return Engine(inputs, outputs, (path, *files), runner)


def _refuse_side_effects(path: Path, program: Program) -> None:
    """Reject ops that open files or connections, call Python or wait for other processes."""
    for block in program.blocks:
        for op in block.ops:
            if op.type not in _HARMLESS and has_op(op.type) and get_op(op.type).side_effect:
                raise FormatError(
                    str(path),
                    f"contains the op {op.type!r}, which has side effects and is not served; "
                    "save the model with save_inference_model from the outputs it needs.",
                )


def _parameter_files(path: Path, names: list[str]) -> tuple[list[Path], str | None]:
    """Return the files of the variables, and the name of the combined file if there is one."""
    if not names:
        return [], None
    folder = path.parent
    if path.name != PROGRAM:
        combined = path.with_suffix(".pdiparams")
        return [combined], combined.name
    single = [folder / name for name in names]
    if all(each.is_file() for each in single):
        return single, None
    others = [each for each in sorted(folder.iterdir()) if each.is_file() and not kind_of(each)]
    if folder / _COMBINED in others:
        others = [folder / _COMBINED]
    if len(others) != 1:
        missing = next(each for each in single if not each.is_file())
        raise FileNotFoundError(
            f"{path} needs the file {missing.name!r} next to it, or all its parameters in one file "
            f"{_COMBINED!r}; save the model again, or rename the file that holds them."
        )
    return others, others[0].name


def _spec(path: Path, var: Variable) -> TensorSpec:
    if var.lod_level:
        raise FormatError(
            str(path),
            f"{var.name!r} holds sequences of different lengths, which cannot be served; pad them.",
        )
    name = "float32" if var.dtype == VarType.BF16 else dtype_name(var.dtype)
    return TensorSpec(var.name, var.shape, name)


class _Runner:
    """Runner of the program on arrays."""

    def __init__(
        self,
        program: Program,
        executor: Executor,
        scope: Scope,
        feeds: Sequence[str],
        fetches: Sequence[str],
    ) -> None:
        self._program, self._executor, self._scope = program, executor, scope
        self._feeds, self._fetches = list(feeds), list(fetches)
        block = program.global_block()
        self._half = {n for n in [*feeds, *fetches] if block.var(n).dtype == VarType.BF16}

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        feed: dict[str, Any] = dict(zip(self._feeds, values, strict=True))
        for name in self._half.intersection(feed):
            feed[name] = torch.from_numpy(feed[name]).bfloat16()
        with torch.inference_mode():
            found = self._executor.run(
                self._program, feed=feed, fetch_list=self._fetches, scope=self._scope
            )
        return [
            _widened(value) if name in self._half else np.asarray(value)
            for name, value in zip(self._fetches, found, strict=True)
        ]


def _widened(bits: Array) -> Array:
    """Return bfloat16 numbers, stored as uint16, as float32."""
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)
