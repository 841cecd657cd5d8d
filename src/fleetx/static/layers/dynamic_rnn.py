"""DynamicRNN: a recurrent network over variable-length sequences, built step by step.

The sequences are sorted by length and cut into time steps; a While runs the steps, in which a batch
shrinks as sequences end; the collected outputs are merged back into sequences.
"""

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
from fleetx.static.layers.array import array_read, array_to_lod_tensor, array_write, shrink_memory
from fleetx.static.layers.compare import increment, less_than
from fleetx.static.layers.control_flow import parent_of
from fleetx.static.layers.creation import fill_constant
from fleetx.static.layers.while_loop import While

__all__ = ["DynamicRNN"]


class DynamicRNN:
    """Runs a block once per time step of variable-length sequences.

    Inside `with rnn.block():`, `step_input(x)` holds the rows of `x` at this step,
    `static_input(y)` the rows of a batch (or its sequences), `memory(...)` a state,
    `update_memory(old, new)` sets it for the next step, and `output(...)` collects results. Calling
    the object returns the results as sequences.
    """

    BEFORE_RNN = 0
    IN_RNN = 1
    AFTER_RNN = 2

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("dynamic_rnn", name=name)
        self.status = DynamicRNN.BEFORE_RNN
        self.lod_rank_table: Variable | None = None
        self.max_seq_len: Variable | None = None
        self.step_idx: Variable | None = None
        self.zero_idx: Variable | None = None
        self.outputs: list[Variable] = []
        self.cond = self.helper.create_variable_for_type_inference(dtype="bool", shape=[1])
        self.while_op = While(self.cond)
        self._inputs: list[Variable] = []  # arrays of time steps
        self._output_arrays: list[Variable] = []
        self._memories: dict[str, Variable] = {}  # name of a state -> array of its values
        self._updates: list[tuple[Variable, Variable]] = []

    # -- what a step sees ---------------------------------------------------------------------
    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """Return the rows of `x` at this step; the first call also decides the number of steps."""
        self._need_block("step_input")
        check_type(x, "x", Variable, "DynamicRNN.step_input")
        if self.lod_rank_table is None:
            self._rank(x, level)
        array = self._outer("dynamic_rnn_input_array", VarType.LOD_TENSOR_ARRAY, x.dtype)
        self._inputs.append(array)
        self._append("lod_tensor_to_array", {"X": x, "RankTable": self.lod_rank_table}, array)
        return array_read(array=array, i=self._step())

    def _rank(self, x: Variable, level: int) -> None:
        table = self._outer("lod_rank_table", VarType.LOD_RANK_TABLE, None)
        table.stop_gradient = True
        self._append("lod_rank_table", {"X": x}, table, level=level)
        self.lod_rank_table = table
        self.max_seq_len = self._outer("dynamic_rnn_max_seq_len", VarType.LOD_TENSOR, "int64")
        self._append("max_sequence_len", {"RankTable": table}, self.max_seq_len)
        self.cond.stop_gradient = True
        steps = {"X": self._step(), "Y": self.max_seq_len}
        self._append("less_than", steps, self.cond, force_cpu=True)

    def static_input(self, x: Variable) -> Variable:
        """Return the rows (or sequences) of `x` for the sequences that continue at this step."""
        self._need_block("static_input")
        check_type(x, "x", Variable, "DynamicRNN.static_input")
        if self.lod_rank_table is None:
            raise RuntimeError("static_input() must be called after step_input().")
        ordered = self._reordered(x, "dynamic_rnn_static_input_reordered")
        return shrink_memory(ordered, self._step(), self.lod_rank_table)

    def memory(
        self,
        init: Variable | None = None,
        shape: list[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> Variable:
        """Return a state from the previous step.

        Args:
            init: its first value, one row per sequence; or, instead of it,
            shape: the shape of one row of a first value filled with `value`.
            value: see `shape`.
            need_reorder: whether the rows of `init` differ and are in the order of the batch,
                rather than sorted by decreasing length.
            dtype: the element type of a first value made from `shape`.
        """
        self._need_block("memory")
        if shape is not None:
            check_type(shape, "shape", (list, tuple), "DynamicRNN.memory")
        self._make_zero()
        if init is None:
            init = self._filled(shape, value, dtype)
        elif not isinstance(init, Variable):
            raise TypeError(
                f"init of DynamicRNN.memory() must be a Variable, not {type(init).__name__}."
            )
        elif need_reorder:
            if self.lod_rank_table is None:
                raise ValueError(
                    "DynamicRNN.memory(need_reorder=True) must be called after step_input()."
                )
            init = self._reordered(init, "dynamic_rnn_mem_init_reordered")
        array = self._outer("dynamic_rnn_mem_array", VarType.LOD_TENSOR_ARRAY, init.dtype)
        self._append("write_to_array", {"X": init, "I": self.zero_idx}, array)
        state = array_read(array=array, i=self._step())
        if self.lod_rank_table is None:
            raise ValueError("DynamicRNN.memory() must be called after step_input().")
        state = shrink_memory(x=state, i=self._step(), table=self.lod_rank_table)
        self._memories[state.name] = array
        return state

    def _filled(self, shape: list[int] | None, value: float, dtype: Any) -> Variable:
        if not self._inputs or shape is None:
            raise ValueError(
                "DynamicRNN.memory() needs init, or a shape and a step_input() called before."
            )
        init = self._outer("mem_init", VarType.LOD_TENSOR, dtype)
        first = self._outer("in0", VarType.LOD_TENSOR, self._inputs[0].dtype)
        self._append("read_from_array", {"X": self._inputs[0], "I": self.zero_idx}, first)
        attrs = {"shape": [-1, *shape], "value": float(value), "dtype": int(init.dtype)}
        self._append("fill_constant_batch_size_like", {"Input": first}, init, **attrs)
        return init

    # -- what a step leaves -------------------------------------------------------------------
    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Set the value of the state `ex_mem` for the next step."""
        self._need_block("update_memory")
        check_type(ex_mem, "ex_mem", Variable, "DynamicRNN.update_memory")
        check_type(new_mem, "new_mem", Variable, "DynamicRNN.update_memory")
        array = self._memories.get(ex_mem.name)
        if array is None:
            raise ValueError(
                f"{ex_mem.name!r} is not a memory of this DynamicRNN; call memory() first."
            )
        self._updates.append((new_mem, array))

    def output(self, *outputs: Variable) -> None:
        """Collect values of every step as outputs."""
        self._need_block("output")
        for each in outputs:
            name = f"{self.helper.name}_output_array_{each.name}"
            array = self._outer(name, VarType.LOD_TENSOR_ARRAY, each.dtype)
            array_write(x=each, i=self._step(), array=array)
            self._output_arrays.append(array)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Build one time step inside the `with`."""
        if self.status != DynamicRNN.BEFORE_RNN:
            raise ValueError("the block of a DynamicRNN can be built only once.")
        self.step_idx = fill_constant(shape=[1], dtype="int64", value=0, force_cpu=True)
        self.status = DynamicRNN.IN_RNN
        with self.while_op.block():
            yield
            if self.max_seq_len is None or self.lod_rank_table is None:
                raise ValueError("the block of a DynamicRNN must call step_input().")
            increment(x=self.step_idx, value=1.0, in_place=True)
            for new_state, array in self._updates:
                array_write(x=new_state, i=self.step_idx, array=array)
            less_than(x=self.step_idx, y=self.max_seq_len, force_cpu=True, cond=self.cond)
        self.status = DynamicRNN.AFTER_RNN
        self.outputs = [array_to_lod_tensor(a, self.lod_rank_table) for a in self._output_arrays]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output, or the list of outputs."""
        if self.status != DynamicRNN.AFTER_RNN:
            raise ValueError("the outputs of a DynamicRNN exist only after its block.")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    # -- helpers ------------------------------------------------------------------------------
    def _need_block(self, method: str) -> None:
        if self.status != DynamicRNN.IN_RNN:
            raise ValueError(f"DynamicRNN.{method}() must be called inside `with rnn.block():`.")

    def _parent_block(self) -> Block:
        return parent_of(self.helper.main_program.current_block())

    def _step(self) -> Variable:
        assert self.step_idx is not None  # set when the block begins
        return self.step_idx

    def _outer(self, key: str, type: VarType, dtype: Any) -> Variable:
        """Create a variable in the block around the loop."""
        name = unique_name.generate(key)
        return self._parent_block().create_var(name=name, type=type, dtype=dtype)

    def _reordered(self, x: Variable, key: str) -> Variable:
        out = self._outer(key, VarType.LOD_TENSOR, x.dtype)
        inputs = {"X": x, "RankTable": self.lod_rank_table}
        self._append("reorder_lod_tensor_by_rank", inputs, out)
        return out

    def _append(self, type: str, inputs: dict[str, Any], out: Variable, **attrs: Any) -> None:
        """Append an op to the block around the loop."""
        block = self._parent_block()
        block.append_op(type=type, inputs=inputs, outputs={"Out": out}, attrs=attrs)

    def _make_zero(self) -> None:
        if self.zero_idx is not None:
            return
        self.zero_idx = self._outer("zero_idx", VarType.LOD_TENSOR, "int64")
        attrs = {"shape": [1], "dtype": int(self.zero_idx.dtype), "value": 0.0, "force_cpu": True}
        self._append("fill_constant", {}, self.zero_idx, **attrs)
