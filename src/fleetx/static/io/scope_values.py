"""Values between files and scopes: reading them to be saved, and setting loaded ones.

All loaded values are checked against the program's declarations and moved to their device before
the first one is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from fleetx.checkpoint.paddle_tensor import ALIGNMENT, Record
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.dtypes import VarType, dtype_name, to_numpy
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.run.scope import Scope, global_scope, tensor_to_numpy


def valid_program(program: Any) -> Program:
    """Resolve a program argument: None is the default program, a CompiledProgram is unwrapped."""
    if program is None:
        return default_main_program()
    inner = getattr(program, "_program", program)
    if not isinstance(inner, Program):
        raise TypeError(f"main_program must be a Program, not {type(program).__name__}.")
    return inner


def device_of(executor: Any) -> torch.device:
    """Return the device of an executor's variables."""
    place = getattr(executor, "place", None)
    if place is None:
        raise TypeError(f"executor must be an Executor, not {type(executor).__name__}.")
    return place.device()


def savable(variables: Iterable[Variable]) -> dict[str, Variable]:
    """Return the variables that files can hold, by name, without those of kind RAW."""
    found: dict[str, Variable] = {}
    for var in variables:
        if not isinstance(var, Variable):
            raise TypeError(f"a Variable was expected, not {type(var).__name__}: {var!r}.")
        if var.type != VarType.RAW:
            found[var.name] = var
    return found


def value_of(name: str, scope: Scope | None = None) -> Record:
    """Return the value and the offsets that a scope holds for a variable."""
    held = (scope or global_scope()).find_var(name)
    if held is None or held.value is None:
        raise RuntimeError(
            f"Variable {name!r} cannot be saved: it has no value; run the startup program first."
        )
    if not isinstance(held.value, torch.Tensor):
        raise TypeError(
            f"Variable {name!r} cannot be saved: it holds a {type(held.value).__name__}, no tensor."
        )
    return Record(tensor_to_numpy(held.value), held.lod)


def _shape_fits(shape: tuple[int, ...], var: Variable) -> bool:
    if isinstance(var, Parameter):
        return shape == var.shape
    # Other variables may be declared with unknown dimensions, or with no shape at all; and Paddle
    # 1.x gives counters and rates the shape [1] where 2.x gives them [].
    if not var.shape or (int(np.prod(shape)) == 1 and all(dim in (1, -1) for dim in var.shape)):
        return True
    return len(shape) == len(var.shape) and all(
        declared in (-1, dim) for dim, declared in zip(shape, var.shape, strict=True)
    )


def check_value(array: np.ndarray, var: Variable, source: str) -> None:
    """Reject a loaded array whose shape or type differs from the program's variable."""
    if not _shape_fits(array.shape, var):
        raise RuntimeError(
            f"{source}: variable {var.name!r} has shape {list(array.shape)} there, but the program "
            f"declares {list(var.shape)}."
        )
    if var.dtype is not None and array.dtype != to_numpy(var.dtype):
        found = dtype_name(array.dtype)
        raise RuntimeError(
            f"{source}: variable {var.name!r} is of type {found} there, but the program declares "
            f"{dtype_name(var.dtype)}."
        )


def to_tensor(array: np.ndarray, device: torch.device | None = None) -> torch.Tensor:
    """Return an array as a tensor, sharing memory if possible; uint16 holds bfloat16."""
    if array.dtype == np.uint16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    if device is not None and device.type != "cpu":
        return tensor.to(device)
    # Unaligned memory would slow down torch's vector instructions in every step.
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def put_values(
    records: Mapping[str, Record],
    *,
    device: torch.device | None = None,
    scope: Scope | None = None,
) -> None:
    """Set loaded values in a scope, which takes over their memory; create missing variables.

    Without ``device`` a value goes to the device of the variable's old value, or to the CPU.
    """
    target = scope or global_scope()
    tensors = {}
    for name, record in records.items():
        old = getattr(target.find_var(name), "value", None)
        tensors[name] = to_tensor(record.array, device or getattr(old, "device", None))
    for name, tensor in tensors.items():
        held = target.var(name)
        held.value = tensor
        held.lod = [list(level) for level in records[name].lod]
