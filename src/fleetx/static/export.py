"""Export programs for serving: as `torch.export` files (.pt2) and as ONNX.

`ProgramModule` is an inference program as an `nn.Module`: its parameters are the program's
variables, its forward runs the program's ops. Both exporters trace it with dynamic shapes where the
feeds have unknown dimensions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fleetx.checkpoint.atomic import atomic_write, write_bytes
from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.op_names import sub_blocks
from fleetx.static.graph.op_registry import EMPTY_NAME, get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.io.inference_program import inference_program
from fleetx.static.io.scope_values import device_of, valid_program
from fleetx.static.lowering.blocks import OpContext, bind_op, call_with_lod
from fleetx.static.lowering.needed_ops import MARKERS
from fleetx.static.run.scope import Scope, global_scope

_Feeds = str | Variable | Sequence[str | Variable]
_Fetches = Variable | Sequence[Variable]

# The size of unknown dimensions; not 0 or 1, which tracing specialises on.
_STAND_IN = 2


class _Call:
    """One op of the program, bound to its attributes."""

    def __init__(self, op: Operator, context: OpContext) -> None:
        self.op = op
        self.definition = get_op(op.type)
        self.function = bind_op(op, context)
        self.context = context

    def run(self, values: dict[str, Any]) -> None:
        arguments: list[Any] = []
        for slot in self.definition.inputs:
            row = [None if n == EMPTY_NAME else values.get(n) for n in self.op.input(slot.name)]
            arguments.append(row if slot.many else (row[0] if row else None))
        if self.definition.needs_lod:
            result = call_with_lod(self.op, self.definition, self.function, arguments, self.context)
        else:
            result = self.function(*arguments)
        rows = (result,) if len(self.definition.outputs) == 1 else result
        for slot, row in zip(self.definition.outputs, rows, strict=True):
            names = self.op.output(slot.name)
            values.update(zip(names, row if slot.many else [row], strict=False))


class ProgramModule(torch.nn.Module):
    """An inference program as a module: call it with the feeds in order, get the list of fetches.

    Args:
        program: a program in test mode, without control flow and variable-length data.
        feeds: names of the variables to feed.
        fetches: names of the variables to return.
        scope: holds the values of the program's variables, which are copied.
        device: the device of the module.
    """

    def __init__(
        self,
        program: Program,
        *,
        feeds: Sequence[str],
        fetches: Sequence[str],
        scope: Scope | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.feeds, self.fetches = list(feeds), list(fetches)
        device = device or torch.device("cpu")
        block = program.global_block()
        ops = [op for op in block.ops if op.type not in MARKERS]
        for op in ops:
            if sub_blocks(op):
                raise ValueError(f"A program with control flow ({op.type!r}) cannot be exported.")
        self._context = OpContext(device, scope or global_scope())
        self._calls = [_Call(op, self._context) for op in ops]
        self._members: dict[str, str] = {}
        made = set(feeds)
        for op in ops:
            for name in op.input_arg_names:
                if name not in made and name != EMPTY_NAME and name not in self._members:
                    self._hold(block.var_recursive(name), device)
            made.update(op.output_arg_names)

    def _hold(self, var: Variable, device: torch.device) -> None:
        held = self._context.scope.find_var(var.name)
        if held is None or not isinstance(held.value, torch.Tensor):
            raise RuntimeError(
                f"Variable {var.name!r} cannot be exported: it is not fed and has no value; "
                "run the startup program first."
            )
        value = held.value.detach().to(device).clone()
        member = re.sub(r"\W", "_", var.name)
        while hasattr(self, member):
            member += "_"
        if isinstance(var, Parameter):
            self.register_parameter(member, torch.nn.Parameter(value, requires_grad=False))
        else:
            self.register_buffer(member, value)
        self._members[var.name] = member

    def forward(self, *feeds: torch.Tensor) -> list[torch.Tensor]:
        """Run the program."""
        values: dict[str, Any] = dict(zip(self.feeds, feeds, strict=True))
        for name, member in self._members.items():
            values[name] = getattr(self, member)
        for call in self._calls:
            call.run(values)
        return [values[name] for name in self.fetches]


def _names(feeds: _Feeds) -> list[str]:
    given = [feeds] if isinstance(feeds, str | Variable) else list(feeds)
    return [feed if isinstance(feed, str) else feed.name for feed in given]


def _example(var: Variable) -> torch.Tensor:
    if var.lod_level:
        raise ValueError(f"Feed {var.name!r} holds sequences of varying length: not exportable.")
    shape = [_STAND_IN if dim < 0 else dim for dim in var.shape]
    # Zeros are valid for every input: as ids they look up row 0.
    return torch.zeros(shape, dtype=to_torch(var.dtype))


def _open_dimension() -> Any:
    # Ops may specialise a dimension, so AUTO and not DYNAMIC.
    mark = getattr(torch.export.Dim, "AUTO", None)
    if mark is None:
        raise RuntimeError(
            f"exporting a program needs PyTorch 2.6 or newer, but this is {torch.__version__}: "
            "install a newer one, or save the program with static.io.save_inference_model."
        )
    return mark


def _trace(
    feeds: _Feeds,
    fetches: _Fetches,
    executor: Any,
    program: Program | None,
    example: Mapping[str, Any] | None,
) -> tuple[Any, list[str], list[str]]:
    names = _names(feeds)
    targets = [fetches] if isinstance(fetches, Variable) else list(fetches)
    device = device_of(executor)
    small = inference_program(valid_program(program), names, targets)
    block = small.global_block()
    module = ProgramModule(small, feeds=names, fetches=[var.name for var in targets], device=device)
    given = {name: torch.from_numpy(np.array(value)) for name, value in (example or {}).items()}
    arguments = tuple(given.get(n, _example(block.var(n))).to(device) for n in names)
    mark = _open_dimension()
    open_dimensions = tuple(
        {i: mark for i, dim in enumerate(block.var(n).shape) if dim < 0} for n in names
    )
    traced = torch.export.export(
        module.eval(), arguments, dynamic_shapes={"feeds": open_dimensions}, strict=False
    )
    return traced, names, module.fetches


def export_torch(
    path: str | os.PathLike[str],
    feeds: _Feeds,
    fetches: _Fetches,
    executor: Any,
    program: Program | None = None,
    *,
    example: Mapping[str, Any] | None = None,
) -> None:
    """Write a `.pt2` file: `torch.export.load(path).module()(*feeds)` returns the fetches.

    Args:
        path: the file to write.
        feeds: names or Variables, in the order of the module's arguments.
        fetches: the Variables to compute.
        executor: its place is the device of the module.
        program: the default main program if None.
        example: arrays to trace with, by name; by default zeros of the declared shapes.

    The names of feeds and fetches are stored as the extra file `fleetx.json`.
    """
    traced, names, outputs = _trace(feeds, fetches, executor, program, example)
    extra = {"fleetx.json": json.dumps({"feeds": names, "fetches": outputs})}
    with atomic_write(path) as stream:
        torch.export.save(traced, stream, extra_files=extra)


def export_onnx(
    path: str | os.PathLike[str],
    feeds: _Feeds,
    fetches: _Fetches,
    executor: Any,
    program: Program | None = None,
    *,
    example: Mapping[str, Any] | None = None,
    opset_version: int | None = None,
) -> None:
    """Write an ONNX file whose inputs and outputs have the names of the program's variables.

    The arguments are those of :func:`export_torch`. Requires `pip install fleetx[onnx]`.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError("export_onnx needs ONNX: pip install 'fleetx[onnx]'.") from error
    traced, names, outputs = _trace(feeds, fetches, executor, program, example)
    exported = torch.onnx.export(
        traced,
        input_names=names,
        output_names=outputs,
        opset_version=opset_version,
        dynamo=True,
        verbose=False,
    )
    assert exported is not None  # it is None only for the old exporter
    write_bytes(path, exported.model_proto.SerializeToString())
