"""Statistics of a program: op counts, memory of its variables, parameters of its layers."""

from __future__ import annotations

import math
from collections import Counter

from fleetx.static.graph.dtypes import VarType, to_torch
from fleetx.static.graph.op_registry import EMPTY_NAME
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable

_UNITS = ("B", "KB", "MB", "GB")


def op_freq_statistic(program: Program) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return the counts of op types and of pairs `producer->consumer`."""
    _check(program)
    block = program.global_block()
    parameters = {parameter.name for parameter in block.all_parameters()}
    types: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    producer: dict[str, str] = {}
    for op in block.ops:
        if any(name not in parameters for name in op.output_arg_names):
            types[op.type] += 1
        for name in op.input_arg_names:
            if name in producer and name not in parameters:
                pairs[f"{producer[name]}->{op.type}"] += 1
        producer.update(dict.fromkeys(op.output_arg_names, op.type))
    return types.most_common(), pairs.most_common()


def memory_usage(program: Program, batch_size: int) -> tuple[float, float, str]:
    """Return a lower and an upper estimate of the memory of a batch's variables, and the unit."""
    _check(program)
    if batch_size <= 0:
        raise ValueError(f"batch_size must be positive, not {batch_size}.")
    block = program.global_block()
    names = {name for op in block.ops for name in op.output_arg_names} - {EMPTY_NAME}
    found = [block.find_var(name) for name in sorted(names)]
    variables = [v for v in found if v is not None and v.type == VarType.LOD_TENSOR]
    total = float(sum(_bytes(variable, batch_size) for variable in variables))
    unit = 0
    while total > 1024 and unit < len(_UNITS) - 1:
        total, unit = total / 1024, unit + 1
    # Less than the sum, because variables are freed; more, because kernels need workspace.
    return total * 0.95, total * 1.05, _UNITS[unit]


def summary(main_prog: Program) -> tuple[int, int]:
    """Print the ops of a network with their parameters; return the numbers of parameters and of
    multiplications for one sample."""
    _check(main_prog)
    block = main_prog.global_block()
    rows: list[tuple[str, ...]] = [("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")]
    parameters = flops = 0
    for op in block.ops:
        inputs = [block.find_var(name) for name in op.input_arg_names]
        outputs = [block.find_var(name) for name in op.output_arg_names]
        sizes = [math.prod(v.shape) for v in inputs if v is not None and v.persistable]
        if not sizes or not outputs or outputs[0] is None:
            continue
        out = outputs[0]
        places = math.prod(abs(dim) for dim in out.shape[1:])
        work = sizes[0] * (places // max(1, out.shape[1]) if len(out.shape) > 2 else 1)
        parameters, flops = parameters + sum(sizes), flops + work
        shapes = [str(tuple(v.shape)) for v in (inputs[0], out) if v is not None]
        rows.append((str(len(rows)), op.type, *shapes, str(sum(sizes)), str(work)))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)))
    print(f"Total PARAMs: {parameters}({parameters / 1e9:.4f}G)")
    print(f"Total FLOPs: {flops}({flops / 1e9:.2f}G)")
    return parameters, flops


def _bytes(variable: Variable, batch_size: int) -> int:
    if sum(dim < 0 for dim in variable.shape) > 1:
        raise ValueError(
            f"variable {variable.name!r} has unknown dimensions {variable.shape}; only the "
            "batch size may be unknown."
        )
    count = math.prod(dim if dim >= 0 else -dim * batch_size for dim in variable.shape)
    return count * to_torch(variable.dtype).itemsize


def _check(program: object) -> None:
    if not isinstance(program, Program):
        raise TypeError(f"program must be a Program, not {type(program).__name__}.")
