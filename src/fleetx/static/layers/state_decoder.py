"""Decoders of Fluid's `contrib`: one cell for training over sequences and for a beam search.

A `TrainingDecoder` runs a `StateCell` over target sequences (a DynamicRNN), a `BeamSearchDecoder`
over the words that it finds (a While).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.array import array_read, array_write
from fleetx.static.layers.beam_search import beam_search, beam_search_decode
from fleetx.static.layers.compare import increment, is_empty, less_than
from fleetx.static.layers.control_flow import parent_of
from fleetx.static.layers.creation import fill_constant, zeros
from fleetx.static.layers.dynamic_rnn import DynamicRNN
from fleetx.static.layers.math import elementwise_add, log
from fleetx.static.layers.nn import embedding, fc
from fleetx.static.layers.search import topk
from fleetx.static.layers.sequence import lod_reset, sequence_expand
from fleetx.static.layers.state_cell import HeldState, InitState, StateCell
from fleetx.static.layers.switch import Switch
from fleetx.static.layers.tensor import reshape
from fleetx.static.layers.while_loop import While


class _Memory:
    """A state in a memory of a DynamicRNN."""

    def __init__(self, rnn: DynamicRNN, init: InitState) -> None:
        self._rnn = rnn
        self._memory = rnn.memory(init=init.value, need_reorder=init.need_reorder)

    def read(self) -> Variable:
        return self._memory

    def write(self, value: Variable) -> None:
        self._rnn.update_memory(self._memory, value)


class _InArray:
    """A state in an array with an entry for every step."""

    def __init__(self, block: Block, init: InitState) -> None:
        self._counter = block.create_var(
            name=unique_name.generate("array_state_counter"), dtype="int64", stop_gradient=True
        )
        attrs = {"shape": [1], "dtype": VarType.INT64, "value": 0.0, "force_cpu": True}
        block.append_op("fill_constant", {}, {"Out": [self._counter]}, attrs)
        self._array = _array_with(init.value, self._counter, block, "array_state_array")

    def read(self) -> Variable:
        return array_read(self._array, self._counter)

    def write(self, value: Variable) -> None:
        increment(self._counter, value=1, in_place=True)
        array_write(value, self._counter, self._array)


def _array_with(first: Variable, index: Variable, block: Block, key: str) -> Variable:
    """Return an array, made in a block, whose entry at an index is a variable."""
    array = block.create_var(
        name=unique_name.generate(key), type=VarType.LOD_TENSOR_ARRAY, dtype=first.dtype
    )
    inputs = {"X": [first], "I": [index]}
    block.append_op(type="write_to_array", inputs=inputs, outputs={"Out": [array]})
    return array


class _Decoder:
    """A decoder whose step is described once, in `with decoder.block():`."""

    def __init__(self, state_cell: StateCell) -> None:
        self._status = "before"
        self._state_cell = state_cell

    @property
    def state_cell(self) -> StateCell:
        """The cell, inside the block."""
        self._need("inside", "state_cell")
        return self._state_cell

    @contextlib.contextmanager
    def _describing(self) -> Iterator[None]:
        if self._status != "before":
            raise ValueError(f"block() of a {type(self).__name__} can be used only once.")
        self._status = "inside"
        yield
        self._status = "after"

    def _need(self, status: str, method: str) -> None:
        if self._status != status:
            raise ValueError(f"Use {type(self).__name__}.{method} {status} its block().")


class TrainingDecoder(_Decoder):
    """Runs a cell over target sequences, as a DynamicRNN does."""

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        super().__init__(state_cell)
        self.dynamic_rnn = DynamicRNN()
        state_cell.enter(self)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Return a context manager in which a step is described."""
        with self._describing(), self.dynamic_rnn.block():
            yield
        self._state_cell.leave()

    def hold(self, init: InitState) -> HeldState:
        """Store a state in a memory."""
        return _Memory(self.dynamic_rnn, init)

    def step_input(self, x: Variable) -> Variable:
        """Return the rows of sequences at this step."""
        self._need("inside", "step_input")
        return self.dynamic_rnn.step_input(x)

    def static_input(self, x: Variable) -> Variable:
        """Return rows that are the same at every step."""
        self._need("inside", "static_input")
        return self.dynamic_rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """Collect results of a step."""
        self._need("inside", "output")
        self.dynamic_rnn.output(*outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the collected results as sequences."""
        self._need("after", "__call__")
        return self.dynamic_rnn(*args, **kwargs)


class BeamSearchDecoder(_Decoder):
    """Runs a cell in a beam search."""

    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: int,
        word_dim: int,
        input_var_dict: Mapping[str, Variable] | None = None,
        topk_size: int = 50,
        sparse_emb: bool = True,
        max_len: int = 100,
        beam_size: int = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        """Create a decoder.

        Args:
            state_cell: the cell.
            init_ids: the first words, with two levels of sequences.
            init_scores: their scores, in the same form.
            target_dict_dim: the number of words.
            word_dim: the width of a word's embedding.
            input_var_dict: values of inputs of the cell other than the word.
            topk_size: the number of candidates per word.
            sparse_emb: whether the gradient of the embedding holds only the rows in use.
            max_len: the maximum number of steps.
            beam_size: the width of the beam.
            end_id: the word that ends a sentence.
            name: the layer's name.
        """
        super().__init__(state_cell)
        self._helper = LayerHelper("beam_search_decoder", name=name)
        self._counter = zeros([1], "int64")
        self._counter.stop_gradient = True
        self._max_len = fill_constant([1], "int64", max_len)
        self._cond = less_than(self._counter, fill_constant([1], "int64", max_len))
        self._while = While(self._cond)
        self._zero = fill_constant([1], "int64", 0, force_cpu=True)
        state_cell.enter(self)
        self._first = init_ids, init_scores
        self._other_inputs = dict(input_var_dict or {})
        self._words, self._width = target_dict_dim, word_dim
        self._candidates, self._sparse = topk_size, sparse_emb
        self._beam_size, self._end_id = beam_size, end_id
        self._ids: Variable | None = None
        self._scores: Variable | None = None
        self._arrays: dict[str, Variable] = {}
        self._links: list[tuple[Variable, Variable]] = []

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Return a context manager in which a step is described."""
        with self._describing(), self._while.block():
            yield
            with Switch() as switch, switch.case(self._cond):
                increment(self._counter, value=1.0, in_place=True)
                for value, array in self._links:
                    array_write(value, self._counter, array)
                less_than(self._counter, self._max_len, cond=self._cond)
        self._state_cell.leave()

    def hold(self, init: InitState) -> HeldState:
        """Store a state in an array."""
        return _InArray(self._outer_block(), init)

    def early_stop(self) -> None:
        """End the search after this step."""
        fill_constant([1], "bool", 0, force_cpu=True, out=self._cond)

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """Return the value at this step of an array whose first value is `init`."""
        self._need("inside", "read_array")
        if is_ids and is_scores:
            raise ValueError("An array holds ids or scores, not both.")
        check_type(init, "init", Variable, "BeamSearchDecoder.read_array")
        array = _array_with(init, self._zero, self._outer_block(), "beam_search_decoder_array")
        if is_ids:
            self._ids = array
        elif is_scores:
            self._scores = array
        value = array_read(array, self._counter)
        self._arrays[value.name] = array
        return value

    def update_array(self, array: Variable, value: Variable) -> None:
        """Set the value for the next step of an array, given by the result of `read_array`."""
        self._need("inside", "update_array")
        check_type(value, "value", Variable, "BeamSearchDecoder.update_array")
        if array.name not in self._arrays:
            raise ValueError(f"Read {array.name!r} with read_array before update_array.")
        self._links.append((value, self._arrays[array.name]))

    def decode(self) -> None:
        """Describe the default step: word probabilities from the cell's output."""
        with self.block():
            ids = self.read_array(self._first[0], is_ids=True)
            scores = self.read_array(self._first[1], is_scores=True)
            size = [self._words, self._width]
            word = embedding(ids, size, dtype="float32", is_sparse=self._sparse)
            kept, inputs = self._expanded_inputs(scores)
            cell = self.state_cell
            for name in cell.state_names:
                cell.set_state(name, sequence_expand(cell.get_state(name), scores))
            for name in cell.inputs:
                inputs.setdefault(name, word)
            cell.compute_state(inputs)
            out = lod_reset(cell.out_state(), y=scores)
            probabilities, candidates = topk(
                fc(out, self._words, act="softmax"), k=self._candidates
            )
            sums = elementwise_add(log(probabilities), reshape(scores, [-1]), axis=0)
            found, found_scores = beam_search(
                ids, scores, candidates, sums, self._beam_size, end_id=self._end_id, level=0
            )
            with Switch() as switch:
                with switch.case(is_empty(found)):
                    self.early_stop()
                with switch.default():
                    cell.update_states()
                    self.update_array(ids, found)
                    self.update_array(scores, found_scores)
                    for name, read in kept.items():
                        self.update_array(read, inputs[name])

    def _expanded_inputs(self, scores: Variable) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Return other inputs as read, and expanded to a row per entry of the beam."""
        kept = {}
        for name, init in self._other_inputs.items():
            if name not in self._state_cell.inputs:
                raise ValueError(f"{name!r} of input_var_dict is not an input of the StateCell.")
            kept[name] = self.read_array(init)
        return kept, {name: sequence_expand(read, scores) for name, read in kept.items()}

    def __call__(self) -> Any:
        """Return the decoded sentences and their scores."""
        self._need("after", "__call__")
        if self._ids is None or self._scores is None:
            raise RuntimeError("Call decode(), or read_array for ids and for scores, first.")
        return beam_search_decode(
            self._ids, self._scores, beam_size=self._beam_size, end_id=self._end_id
        )

    def _outer_block(self) -> Block:
        return parent_of(self._helper.main_program.current_block())


export_defined(globals())
