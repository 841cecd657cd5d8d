"""StaticRNN: a recurrent network over the first dimension of dense inputs, built step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.control_flow import BlockGuard, outer_names, parent_of

__all__ = ["StaticRNN"]


class _Memory:
    """A state: its initial value, its name inside a step, and its updated value."""

    def __init__(self, init: Variable, pre_mem: Variable) -> None:
        self.init = init
        self.pre_mem = pre_mem
        self.mem: Variable | None = None


class StaticRNN:
    """Runs a block once per step along the first dimension of its inputs.

    Inside `with rnn.step():`, `step_input(x)` is `x` at this step, `memory(...)` a state from the
    previous step, `update_memory(old, new)` sets it for the next, `step_output(y)` collects `y`.
    Calling the object returns the collected outputs, stacked along a new first dimension.
    """

    BEFORE_RNN_BLOCK = 0
    IN_RNN_BLOCK = 1
    AFTER_RNN_BLOCK = 2

    def __init__(self, name: str | None = None) -> None:
        check_type(name, "name", (str, type(None)), "fluid.layers.StaticRNN")
        self.helper = LayerHelper("static_rnn", name=name)
        self.memories: dict[str, _Memory] = {}
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []
        self.status = StaticRNN.BEFORE_RNN_BLOCK
        self.seq_len: int | None = None

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Build one step inside the `with`."""
        self.status = StaticRNN.IN_RNN_BLOCK
        with BlockGuard(self.helper.main_program):
            yield
            self._complete_op()
            self.status = StaticRNN.AFTER_RNN_BLOCK

    def _need_block(self, method: str) -> None:
        if self.status != StaticRNN.IN_RNN_BLOCK:
            raise ValueError(f"StaticRNN.{method}() must be called inside `with rnn.step():`.")

    def _parent_block(self) -> Block:
        return parent_of(self.helper.main_program.current_block())

    def memory(
        self,
        init: Variable | None = None,
        shape: Any = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """Return a state from the previous step.

        Args:
            init: its initial value; or, instead of it,
            shape: the shape of an initial value filled with `init_value`,
            batch_ref: a Variable whose dimension `ref_batch_dim_idx` gives the batch size for
                dimension `init_batch_dim_idx` of `shape`.
            init_value: see `shape`.
            init_batch_dim_idx: see `batch_ref`.
            ref_batch_dim_idx: see `batch_ref`.
        """
        self._need_block("memory")
        check_type(init, "init", (Variable, type(None)), "fluid.layers.StaticRNN.memory")
        check_type(shape, "shape", (list, tuple, type(None)), "fluid.layers.StaticRNN.memory")
        check_type(batch_ref, "batch_ref", (Variable, type(None)), "fluid.layers.StaticRNN.memory")
        if init is None:
            if shape is None or batch_ref is None:
                raise ValueError("StaticRNN.memory() needs init, or both shape and batch_ref.")
            parent = self._parent_block()
            name = unique_name.generate(f"{self.helper.name}@memory_boot")
            init = parent.create_var(
                name=name, shape=shape, dtype=batch_ref.dtype, persistable=False
            )
            # A step input has the name of the whole sequence in the outer block.
            reference = parent.var_recursive(batch_ref.name)
            parent.append_op(
                type="fill_constant_batch_size_like",
                inputs={"Input": [reference]},
                outputs={"Out": [init]},
                attrs={
                    "value": float(init_value),
                    "shape": list(init.shape),
                    "dtype": int(init.dtype),
                    "input_dim_idx": ref_batch_dim_idx,
                    "output_dim_idx": init_batch_dim_idx,
                },
            )
        name = unique_name.generate(f"{self.helper.name}@mem")
        previous = self.helper.create_variable(name=name, dtype=init.dtype, shape=init._shape)
        self.memories[previous.name] = _Memory(init, previous)
        return previous

    def step_input(self, x: Variable) -> Variable:
        """Return the part of `x` that belongs to this step: x[step]."""
        self._need_block("step_input")
        check_type(x, "x", Variable, "fluid.layers.StaticRNN.step_input")
        if self.seq_len is None:
            self.seq_len = x.shape[0]
        elif -1 not in (x.shape[0], self.seq_len) and self.seq_len != x.shape[0]:
            raise ValueError(
                f"all inputs of a StaticRNN must have as many steps as the first ({self.seq_len}), "
                f"but {x.name!r} has shape {x.shape}."
            )
        inner = self.helper.create_variable(
            name=x.name, dtype=x.dtype, shape=list(x.shape[1:]), type=x.type
        )
        self.inputs.append(inner)
        return inner

    def step_output(self, o: Variable) -> None:
        """Collect a value of every step as an output."""
        self._need_block("step_output")
        check_type(o, "o", Variable, "fluid.layers.StaticRNN.step_output")
        inner = self._remember(o)
        outside = self._parent_block().create_var(
            name=inner.name, shape=[self.seq_len, *inner.shape], dtype=inner.dtype
        )
        self.outputs.append(outside)

    def output(self, *outputs: Variable) -> None:
        """Collect several values of every step."""
        for each in outputs:
            self.step_output(each)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Set the value of the state `mem` for the next step."""
        check_type(mem, "mem", Variable, "fluid.layers.StaticRNN.update_memory")
        check_type(var, "var", Variable, "fluid.layers.StaticRNN.update_memory")
        self.memories[mem.name].mem = var

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output, or the list of outputs."""
        if self.status != StaticRNN.AFTER_RNN_BLOCK:
            raise ValueError("the outputs of a StaticRNN exist only after its block.")
        if not self.outputs:
            raise ValueError("this StaticRNN has no output; add one with step_output().")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _remember(self, var: Variable) -> Variable:
        attrs = {"dtype": int(var.dtype)}
        return self.helper.output_of("rnn_memory_helper", {"X": var}, attrs, dtype=var.dtype)

    def _complete_op(self) -> None:
        body = self.helper.main_program.current_block()
        parent = parent_of(body)
        reads, _ = outer_names(body)
        scopes = parent.create_var(type=VarType.STEP_SCOPES)
        states = []
        for memory in self.memories.values():
            if memory.mem is None:
                raise ValueError(
                    f"the memory that begins with {memory.init.name!r} is never updated; call "
                    "update_memory() in every step."
                )
            states.append(self._remember(memory.mem).name)
        parent.append_op(
            type="recurrent",
            inputs={
                "inputs": [v.name for v in self.inputs],
                "initial_states": [m.init for m in self.memories.values()],
                "parameters": reads,
            },
            outputs={"outputs": self.outputs, "step_scopes": [scopes]},
            attrs={
                "has_states": bool(states),
                "ex_states": [m.pre_mem.name for m in self.memories.values()],
                "states": states,
                "sub_block": body,
            },
        )
