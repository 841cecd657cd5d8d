"""An op that runs on the variables of a scope, without a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fleetx import torch_private
from fleetx.static.graph.dtypes import VarType, convert_dtype
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.lowering.blocks import BoundOp, OpContext
from fleetx.static.lowering.step_functions import keep_value
from fleetx.static.protobuf.op_proto import OpProto, op_proto
from fleetx.static.run.place import Place
from fleetx.static.run.run_errors import explain_op
from fleetx.static.run.scope import Scope, ScopeVariable

# Attributes that select Paddle's kernels; they do not change results.
_KERNEL_CHOICES = {"use_cudnn", "use_mkldnn", "use_quantizer", "mkldnn_data_type"}


class SingleOp:
    """An op whose inputs and outputs are names in a scope: `SingleOp("scale", X="x", Out="y")`.

    Args:
        type: the type of the op.
        arguments: names of variables by slot (one or a list), and attributes by name.
    """

    def __init__(self, type: str, **arguments: Any) -> None:
        self._proto: OpProto = op_proto(type)
        self._inputs = _names(arguments, [s.name for s in self._proto.inputs])
        self._outputs = _names(arguments, [s.name for s in self._proto.outputs])
        known = {s.name for s in (*self._proto.inputs, *self._proto.outputs)}
        self._attrs = {k: v for k, v in arguments.items() if k not in known}
        self._results = self.no_intermediate_outputs()
        self._reads = list(dict.fromkeys(self.input_vars()))
        # By device, shapes and types of the inputs: the op, its context and the inputs to copy.
        self._built: dict[Any, tuple[BoundOp, OpContext, set[str]]] = {}
        for attr in self._attrs.keys() - {a.name for a in self._proto.attrs} - _KERNEL_CHOICES:
            raise ValueError(f"op {type!r} has no input, output or attribute {attr!r}.")

    def type(self) -> str:
        """Return the op's type."""
        return self._proto.type

    def input(self, slot: str) -> list[str]:
        """Return the names in an input slot."""
        return list(self._inputs.get(slot, ()))

    def output(self, slot: str) -> list[str]:
        """Return the names in an output slot."""
        return list(self._outputs.get(slot, ()))

    def inputs(self) -> dict[str, list[str]]:
        """Return all inputs: slot to names."""
        return {slot: list(names) for slot, names in self._inputs.items()}

    def outputs(self) -> dict[str, list[str]]:
        """Return all outputs: slot to names."""
        return {slot: list(names) for slot, names in self._outputs.items()}

    def input_vars(self) -> list[str]:
        """Return the names of all inputs."""
        return [name for names in self._inputs.values() for name in names]

    def output_vars(self) -> list[str]:
        """Return the names of all outputs."""
        return [name for names in self._outputs.values() for name in names]

    def no_intermediate_outputs(self) -> list[str]:
        """Return the names of the outputs that are not intermediate."""
        notes = {s.name for s in self._proto.outputs if s.intermediate}
        return [n for slot, names in self._outputs.items() if slot not in notes for n in names]

    def support_gpu(self) -> bool:
        """Return True: every op runs on CUDA."""
        return True

    def run(self, scope: Scope, place: Place) -> None:
        """Run the op: read its inputs from the scope, write its outputs to it."""
        inputs = [(name, scope.var(name)) for name in self._reads]
        device = place.device()
        key = (device, *[_signature(found) for _, found in inputs])
        built = self._built.get(key)
        if built is None:
            built = self._built[key] = self._build(scope, device)
        op, context, copied = built
        context.scope = scope
        context.lods = {name: found.lod for name, found in inputs if found.lod}
        values = {name: found.value for name, found in inputs if found.value is not None}
        for name in copied & values.keys():
            values[name] = values[name].clone()
        known, written = dict(values), dict[str, Any]()
        was_enabled = torch.is_grad_enabled()
        torch_private.set_grad_enabled(False)
        try:
            op.run(known, written, context)
        except Exception as error:
            raise explain_op(error, op.op, lambda name: scope.var(name).value) from error
        finally:
            torch_private.set_grad_enabled(was_enabled)
        for name in self._results:
            value = written.get(name)
            if value is not None:  # an op need not compute unused outputs
                variable = scope.var(name)
                shared = [n for n, each in values.items() if each is value and n != name]
                variable.value = value.clone() if shared else keep_value(value)
                variable.lod = context.lods.get(name) or []

    def _build(self, scope: Scope, device: torch.device) -> tuple[BoundOp, OpContext, set[str]]:
        """Return the op in a new program, for the values in a scope."""
        block = Program().global_block()
        for name in dict.fromkeys((*self.input_vars(), *self.output_vars())):
            block.create_var(name=name, **_looks(scope.var(name)))
        op = block.append_op(self.type(), self._inputs, self._outputs, self._attrs)
        context = OpContext(device, scope)
        return BoundOp(op, context, alone=True), context, _copied(op)

    def __str__(self) -> str:
        """Return the op as text."""
        return f"{self._outputs} = {self.type()}({self._inputs}, {self._attrs})"


def _names(arguments: dict[str, Any], slots: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for slot in slots:
        value = arguments.get(slot)
        if value is not None:
            found[slot] = list(value) if isinstance(value, list | tuple) else [value]
    return found


def _copied(op: Operator) -> set[str]:
    """Return the inputs that the op would change in place, but that are not its outputs."""
    return {
        name
        for out, source in get_op(op.type).inplace.items()
        if op.output(out) != op.input(source)
        for name in op.input(source)
    }


def _signature(found: ScopeVariable) -> Any:
    """Return the key of `_looks`."""
    value = found.value
    if not isinstance(value, torch.Tensor):
        return None
    return value.shape, value.dtype, value.layout, len(found.lod)


def _looks(found: ScopeVariable) -> dict[str, Any]:
    value = found.value
    if not isinstance(value, torch.Tensor):
        return {}
    rows = value.layout is torch.sparse_coo
    return {
        "type": VarType.SELECTED_ROWS if rows else VarType.LOD_TENSOR,
        "shape": list(value.shape),
        "dtype": convert_dtype(value.dtype),
        "lod_level": len(found.lod),
    }
