"""An op that runs on the variables of a scope, without a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.program import Program
from fleetx.static.protobuf.op_proto import OpProto, op_proto
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.run.executor import Executor
from fleetx.static.run.place import Place
from fleetx.static.run.scope import Scope, ScopeVariable


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
        for attr in self._attrs.keys() - {a.name for a in self._proto.attrs}:
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
        """Return the names of the outputs that are results, not notes for the gradient."""
        notes = {s.name for s in self._proto.outputs if s.intermediate}
        return [n for slot, names in self._outputs.items() if slot not in notes for n in names]

    def support_gpu(self) -> bool:
        """Tell whether the op runs on CUDA: every op does."""
        return True

    def run(self, scope: Scope, place: Place) -> None:
        """Compute the op: read its inputs from the scope, write its outputs there."""
        program = Program()
        block = program.global_block()
        feed: dict[str, LoDTensor] = {}
        for name in dict.fromkeys((*self.input_vars(), *self.output_vars())):
            found = scope.var(name)
            block.create_var(name=name, **_looks(found))
            if name in self.input_vars() and isinstance(found.value, torch.Tensor):
                value = found.value
                if value.layout is torch.sparse_coo and get_op(self.type()).inplace:
                    value = value.to_dense()  # rows that are missing have the gradient 0
                feed[name] = LoDTensor(value, found.lod)
        block.append_op(
            type=self.type(), inputs=self._inputs, outputs=self._outputs, attrs=self._attrs
        )
        outputs = self.no_intermediate_outputs()
        values = Executor(place).run(
            program, feed=feed, fetch_list=list(outputs), scope=scope, return_numpy=False
        )
        for name, value in zip(outputs, values, strict=True):
            if value is not None:  # an op may leave out what nothing needs
                variable = scope.var(name)
                variable.value, variable.lod = value.value, value.lod()

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


def _looks(found: ScopeVariable) -> dict[str, Any]:
    value = found.value
    if not isinstance(value, torch.Tensor):
        return {}
    return {
        "shape": list(value.shape),
        "dtype": convert_dtype(value.dtype),
        "lod_level": len(found.lod),
    }
