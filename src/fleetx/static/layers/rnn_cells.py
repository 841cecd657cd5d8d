"""Recurrent cells and `rnn`, which runs a cell over the steps of dense sequences."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_dtype, check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE, WIDE_NUMBERS
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.activations import sigmoid, tanh
from fleetx.static.layers.creation import fill_constant, fill_constant_batch_size_like
from fleetx.static.layers.joining import concat, split
from fleetx.static.layers.linalg import matmul
from fleetx.static.layers.math import elementwise_add, elementwise_mul
from fleetx.static.layers.sequence import sequence_mask
from fleetx.static.layers.static_rnn import StaticRNN
from fleetx.static.layers.structure import (
    assert_same_structure,
    flatten,
    map_structure,
    pack_sequence_as,
    select_rows,
    swap_batch_and_time,
)
from fleetx.static.layers.tensor import reverse, shape

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "birnn", "rnn"]


class RNNCell:
    """One step of a recurrent network; subclasses define `call` and, for zero states, shapes."""

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return the output and the new states of one step."""
        raise NotImplementedError(f"{type(self).__name__} must define call().")

    def __call__(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Run `call`."""
        return self.call(inputs, states, **kwargs)

    @property
    def state_shape(self) -> Any:
        """The shape of a state without the batch dimension, or nested shapes."""
        raise NotImplementedError(f"{type(self).__name__} must define state_shape.")

    @property
    def state_dtype(self) -> Any:
        """The element type of the states, or nested ones."""
        raise NotImplementedError(f"{type(self).__name__} must define state_dtype.")

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: Any = "float32",
        init_value: float = 0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """Return states filled with one value.

        Args:
            batch_ref: a Variable (or nested ones) with the batch size.
            shape: the shape of a state, or nested ones; `state_shape` by default.
            dtype: the element type of all states; None for `state_dtype`.
            init_value: the value.
            batch_dim_idx: the dimension of `batch_ref` that is the batch size.
        """
        reference = flatten(batch_ref)[0]
        check_variable_and_dtype(reference, "batch_ref", WIDE_NUMBERS, "RNNCell")
        shapes = self.state_shape if shape is None else shape
        if dtype is None:
            try:
                dtype = self.state_dtype
            except NotImplementedError:
                dtype = "float32"
        leaves = _leaf_shapes(shapes)
        dtypes = flatten(dtype) if len(flatten(dtype)) > 1 else flatten(dtype) * len(leaves)
        states = [
            fill_constant_batch_size_like(
                input=reference,
                shape=list(leaf) if leaf[0] == -1 else [-1, *leaf],
                dtype=kind,
                value=init_value,
                input_dim_idx=batch_dim_idx,
            )
            for leaf, kind in zip(leaves, dtypes, strict=True)
        ]
        return _nest(shapes, iter(states))


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(d, int) for d in value)


def _leaf_shapes(shapes: Any) -> list[Any]:
    return [shapes] if _is_shape(shapes) else [leaf for s in shapes for leaf in _leaf_shapes(s)]


def _nest(shapes: Any, states: Any) -> Any:
    if _is_shape(shapes):
        return next(states)
    return type(shapes)(_nest(s, states) for s in shapes)


def suffixed(attr: Any, suffix: str) -> Any:
    """Return attributes whose name, if they have one, ends with a suffix."""
    if not isinstance(attr, ParamAttr) or attr.name is None:
        return attr
    attr = copy.deepcopy(attr)
    attr.name = f"{attr.name}{suffix}"
    return attr


class _Weights:
    """The parameters of a cell, created when its first step is built and the sizes are known."""

    def __init__(self, scope: str, kind: str, param_attr: Any, bias_attr: Any, dtype: Any) -> None:
        self.helper = LayerHelper(kind, name=unique_name.generate(f"{scope}/{kind}"))
        self.param_attr, self.bias_attr, self.dtype = param_attr, bias_attr, dtype
        self.made: list[Any] = []

    def make(self, shapes: list[tuple[list[int], bool]], suffixes: list[str]) -> list[Any]:
        """Return the parameters, given shape, whether it is a bias, and a suffix for its name."""
        if not self.made:
            for (shape, is_bias), suffix in zip(shapes, suffixes, strict=True):
                attr = suffixed(self.bias_attr if is_bias else self.param_attr, suffix)
                self.made.append(
                    self.helper.create_parameter(attr, shape, self.dtype, is_bias=is_bias)
                )
        return self.made


class GRUCell(RNNCell):
    """One step of a gated recurrent unit.

    Args:
        hidden_size: the width of the state.
        param_attr: the weights' attributes; a name gets `_gate` and `_candidate` appended.
        bias_attr: the biases' attributes, named in the same way.
        gate_activation: the layer applied to the gates, sigmoid by default.
        activation: the layer applied to the candidate, tanh by default.
        name: the scope of the parameters' names.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Any], Any] | None = None,
        activation: Callable[[Any], Any] | None = None,
        dtype: Any = "float32",
        name: str = "GRUCell",
    ) -> None:
        check_type(hidden_size, "hidden_size", int, "GRUCell")
        check_dtype(dtype, "dtype", WIDE, "GRUCell")
        self.hidden_size = hidden_size
        self._weights = _Weights(name, "BasicGRUUnit", param_attr, bias_attr, dtype)
        self._gate_activation = gate_activation or sigmoid
        self._activation = activation or tanh

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return the new state, as output and as state."""
        check_variable_and_dtype(inputs, "inputs", WIDE, "GRUCell")
        check_variable_and_dtype(states, "states", WIDE, "GRUCell")
        size = self.hidden_size
        rows = inputs.shape[-1] + size
        gate_weight, new_weight, gate_bias, new_bias = self._weights.make(
            [([rows, 2 * size], False), ([rows, size], False), ([2 * size], True), ([size], True)],
            ["_gate", "_candidate"] * 2,
        )
        gates = matmul(concat([inputs, states], 1), gate_weight)
        gates = self._gate_activation(elementwise_add(gates, gate_bias))
        reset, update = split(gates, num_or_sections=2, dim=1)
        kept = reset * states
        new = matmul(concat([inputs, kept], 1), new_weight)
        new = self._activation(elementwise_add(new, new_bias))
        hidden = update * states + (1 - update) * new
        return hidden, hidden

    @property
    def state_shape(self) -> list[int]:
        """The shape of the state."""
        return [self.hidden_size]


class LSTMCell(RNNCell):
    """One step of a long short-term memory; its states are [hidden state, cell].

    Args:
        hidden_size: the width of each state.
        gate_activation: accepted; the gates always use sigmoid, as in Paddle.
        activation: accepted; the cell always uses tanh, as in Paddle.
        forget_bias: added to the forget gate.
        name: the scope of the parameters' names.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Any], Any] | None = None,
        activation: Callable[[Any], Any] | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
        name: str = "LSTMCell",
    ) -> None:
        check_type(hidden_size, "hidden_size", int, "LSTMCell")
        check_dtype(dtype, "dtype", WIDE, "LSTMCell")
        self.hidden_size = hidden_size
        self._weights = _Weights(name, "BasicLSTMUnit", param_attr, bias_attr, dtype)
        self._forget_bias = fill_constant([1], dtype=dtype, value=forget_bias)
        self._forget_bias.stop_gradient = False

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return the new hidden state, and the new states."""
        check_variable_and_dtype(inputs, "inputs", WIDE, "LSTMCell")
        check_type(states, "states", list, "LSTMCell")
        for i, state in enumerate(states):
            check_variable_and_dtype(state, f"states[{i}]", WIDE, "LSTMCell")
        hidden, cell = states
        size = self.hidden_size
        rows = inputs.shape[-1] + size
        weight, bias = self._weights.make([([rows, 4 * size], False), ([4 * size], True)], ["", ""])
        gates = elementwise_add(matmul(concat([inputs, hidden], 1), weight), bias)
        take, new, keep, show = split(gates, num_or_sections=4, dim=-1)
        kept = elementwise_mul(cell, sigmoid(elementwise_add(keep, self._forget_bias)))
        cell = elementwise_add(kept, elementwise_mul(sigmoid(take), tanh(new)))
        hidden = tanh(cell) * sigmoid(show)
        return hidden, [hidden, cell]

    @property
    def state_shape(self) -> list[list[int]]:
        """The shapes of hidden state and cell."""
        return [[self.hidden_size], [self.hidden_size]]


def _allow_gradient(x: Variable) -> Variable:
    x.stop_gradient = False
    return x


def rnn(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Run a cell over all steps; return the outputs of all steps and the last states.

    Args:
        cell: the cell.
        inputs: Variables of shape [batch, steps, ...], or [steps, batch, ...] if `time_major`.
        initial_states: the first states; zeros by default.
        sequence_length: the length of each sequence; states do not change after its end.
        time_major: the layout of inputs and outputs; see `inputs`.
        is_reverse: whether to run from the last step to the first.
        kwargs: passed to the cell.
    """
    check_type(cell, "cell", RNNCell, "rnn")
    for i, item in enumerate(flatten(inputs)):
        check_variable_and_dtype(item, f"inputs[{i}]", WIDE, "rnn")
    check_type(sequence_length, "sequence_length", (Variable, type(None)), "rnn")
    if initial_states is None:
        initial_states = cell.get_initial_states(
            batch_ref=inputs, batch_dim_idx=1 if time_major else 0
        )
    for i, item in enumerate(flatten(initial_states)):
        check_variable_and_dtype(item, f"initial_states[{i}]", WIDE, "rnn")
    initial_states = map_structure(_allow_gradient, initial_states)
    if not time_major:
        inputs = map_structure(swap_batch_and_time, inputs)
    mask = None
    if sequence_length is not None:
        steps = shape(flatten(inputs)[0])[0]
        kind = flatten(initial_states)[0].dtype
        mask = swap_batch_and_time(sequence_mask(sequence_length, maxlen=steps, dtype=kind))
    if is_reverse:
        inputs = map_structure(lambda x: reverse(x, axis=[0]), inputs)
        mask = None if mask is None else reverse(mask, axis=[0])
    network = StaticRNN()
    with network.step():
        now = map_structure(network.step_input, inputs)
        states = map_structure(network.memory, initial_states)
        outputs, new_states = cell.call(now, map_structure(lambda x: x, states), **kwargs)
        assert_same_structure(states, new_states)
        if mask is not None:
            going_on = network.step_input(mask)
            new_states = map_structure(
                lambda old, new: select_rows(going_on, new, old), states, new_states
            )
        map_structure(network.update_memory, states, new_states)
        map_structure(network.step_output, outputs)
        map_structure(network.step_output, new_states)
    collected = network()
    count = len(flatten(outputs))
    final_outputs = pack_sequence_as(outputs, collected[:count])
    final_states = pack_sequence_as(new_states, [x[-1] for x in collected[count:]])
    if is_reverse:
        final_outputs = map_structure(lambda x: reverse(x, axis=[0]), final_outputs)
    if not time_major:
        final_outputs = map_structure(swap_batch_and_time, final_outputs)
    return final_outputs, final_states


def birnn(
    cell_fw: RNNCell,
    cell_bw: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    **kwargs: Any,
) -> tuple[Any, tuple[Any, Any]]:
    """Run one cell forwards and another backwards; return their outputs, concatenated in the last
    dimension, and the last states of both. See `rnn` for the arguments."""
    first, second = (None, None) if initial_states is None else initial_states
    more: dict[str, Any] = {"time_major": time_major, **kwargs}
    forwards, last = rnn(cell_fw, inputs, first, sequence_length, **more)
    backwards, begin = rnn(cell_bw, inputs, second, sequence_length, is_reverse=True, **more)
    joined = map_structure(lambda a, b: concat([a, b], axis=-1), forwards, backwards)
    return joined, (last, begin)
