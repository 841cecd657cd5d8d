"""Recurrent layers: cells, loops over them, and SimpleRNN, LSTM and GRU of several layers.

Weights are laid out as in PyTorch: [gates * hidden, input], gates in the order i f g o (LSTM) and
r z c (GRU).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers as _layers
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Uniform
from fleetx.static.layers.rnn_cells import RNNCell, rnn
from fleetx.static.nn import functional as F
from fleetx.static.nn.container import LayerList
from fleetx.static.nn.layer import Layer

_ATTRS = ("weight_ih_attr", "weight_hh_attr", "bias_ih_attr", "bias_hh_attr")
_DIRECTIONS = ("forward", "bidirect", "bidirectional")


class RNNCellBase(Layer, RNNCell):
    """One step of a recurrent network: `forward(inputs, states)` returns outputs and new states."""

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return the output and the new states of one step."""
        found: tuple[Any, Any] = self.forward(inputs, states, **kwargs)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, with the hooks of the layer."""
        return Layer.__call__(self, *args, **kwargs)


class _GatedCell(RNNCellBase):
    """A cell with weights for the inputs and for the hidden state."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if hidden_size <= 0:
            raise ValueError(f"hidden_size must be positive, not {hidden_size}.")
        bound = 1.0 / math.sqrt(hidden_size)
        first = Uniform(-bound, bound)
        rows = self.gates * hidden_size

        def make(shape: list[int], attr: Any, is_bias: bool) -> Any:
            return self.create_parameter(
                shape, attr=attr, is_bias=is_bias, default_initializer=first
            )

        self.weight_ih = make([rows, input_size], weight_ih_attr, False)
        self.weight_hh = make([rows, hidden_size], weight_hh_attr, False)
        self.bias_ih = make([rows], bias_ih_attr, True)
        self.bias_hh = make([rows], bias_hh_attr, True)
        self.input_size, self.hidden_size = input_size, hidden_size

    @property
    def state_shape(self) -> Any:
        """The shape of the state without the batch dimension."""
        return (self.hidden_size,)

    def _sums(self, inputs: Variable, hidden: Variable) -> tuple[Variable, Variable]:
        """Return the contributions of the inputs and of the hidden state to the gates."""
        found = []
        for value, weight, bias in (
            (inputs, self.weight_ih, self.bias_ih),
            (hidden, self.weight_hh, self.bias_hh),
        ):
            product = _layers.matmul(value, weight, transpose_y=True)
            found.append(product if bias is None else product + bias)
        return found[0], found[1]

    def _states(self, inputs: Variable, states: Any) -> Any:
        if states is None:
            return self.get_initial_states(inputs, self.state_shape, inputs.dtype)
        return states

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.input_size}, {self.hidden_size}"


class SimpleRNNCell(_GatedCell):
    """h = act(x W_ih' + b_ih + h W_hh' + b_hh)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, *attrs, name)
        check_choice(activation, "activation", ("tanh", "relu"), "SimpleRNNCell")
        self.activation = activation

    def forward(self, inputs: Variable, states: Any = None) -> tuple[Any, Any]:
        """Return the new hidden state, twice."""
        of_inputs, of_hidden = self._sums(inputs, self._states(inputs, states))
        hidden = getattr(F, self.activation)(of_inputs + of_hidden)
        return hidden, hidden


class LSTMCell(_GatedCell):
    """One LSTM step; its states are (hidden state, cell state)."""

    gates = 4

    @property
    def state_shape(self) -> Any:
        """The shapes of both states without the batch dimension."""
        return ((self.hidden_size,), (self.hidden_size,))

    def forward(self, inputs: Variable, states: Any = None) -> tuple[Any, Any]:
        """Return the new hidden state, and both new states."""
        hidden, cell = self._states(inputs, states)
        of_inputs, of_hidden = self._sums(inputs, hidden)
        i, f, g, o = _layers.split(of_inputs + of_hidden, 4, dim=-1)
        cell = _layers.sigmoid(f) * cell + _layers.sigmoid(i) * F.tanh(g)
        hidden = _layers.sigmoid(o) * F.tanh(cell)
        return hidden, (hidden, cell)


class GRUCell(_GatedCell):
    """One GRU step."""

    gates = 3

    def forward(self, inputs: Variable, states: Any = None) -> tuple[Any, Any]:
        """Return the new hidden state, twice."""
        before = self._states(inputs, states)
        of_inputs, of_hidden = self._sums(inputs, before)
        x_r, x_z, x_c = _layers.split(of_inputs, 3, dim=-1)
        h_r, h_z, h_c = _layers.split(of_hidden, 3, dim=-1)
        reset, update = _layers.sigmoid(x_r + h_r), _layers.sigmoid(x_z + h_z)
        candidate = F.tanh(x_c + reset * h_c)
        hidden = (before - candidate) * update + candidate
        return hidden, hidden


class RNN(Layer):
    """Runs a cell over all steps; returns the outputs of all steps and the last states."""

    def __init__(self, cell: Any, is_reverse: bool = False, time_major: bool = False) -> None:
        super().__init__()
        self.cell, self.is_reverse, self.time_major = cell, is_reverse, time_major

    def forward(
        self,
        inputs: Variable,
        initial_states: Any = None,
        sequence_length: Variable | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Run the cell."""
        if initial_states is None:
            batch = 1 if self.time_major else 0
            initial_states = self.cell.get_initial_states(
                inputs, self.cell.state_shape, inputs.dtype, batch_dim_idx=batch
            )
        return rnn(
            self.cell,
            inputs,
            initial_states,
            sequence_length,
            self.time_major,
            self.is_reverse,
            **kwargs,
        )


class BiRNN(Layer):
    """Runs one cell forwards and another backwards; their outputs are concatenated."""

    def __init__(self, cell_fw: Any, cell_bw: Any, time_major: bool = False) -> None:
        super().__init__()
        self.forwards = RNN(cell_fw, False, time_major)
        self.backwards = RNN(cell_bw, True, time_major)

    def forward(
        self,
        inputs: Variable,
        initial_states: Any = None,
        sequence_length: Variable | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Return the concatenated outputs, and the last states of both."""
        first, second = (None, None) if initial_states is None else initial_states
        forwards, last = self.forwards(inputs, first, sequence_length, **kwargs)
        backwards, begin = self.backwards(inputs, second, sequence_length, **kwargs)
        return _layers.concat([forwards, backwards], axis=-1), (last, begin)


class _Stack(LayerList):
    """Stacked recurrent layers, in one or both directions."""

    def __init__(
        self,
        cell: Any,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        direction: str,
        time_major: bool,
        dropout: float,
        attrs: Sequence[Any],
        **settings: Any,
    ) -> None:
        settings |= zip(_ATTRS, attrs, strict=True)
        check_choice(direction, "direction", _DIRECTIONS, type(self).__name__)
        directions = 1 if direction == "forward" else 2
        sizes = [input_size] + [hidden_size * directions] * (num_layers - 1)
        made: list[Any] = []
        for size in sizes:
            cells = [cell(size, hidden_size, **settings) for _ in range(directions)]
            if directions == 2:
                made.append(BiRNN(cells[0], cells[1], time_major))
            else:
                made.append(RNN(cells[0], False, time_major))
        super().__init__(made)
        self.num_directions, self.dropout = directions, dropout
        self.time_major, self.state_components = time_major, 2 if cell is LSTMCell else 1

    def forward(
        self,
        inputs: Variable,
        initial_states: Any = None,
        sequence_length: Variable | None = None,
    ) -> tuple[Any, Any]:
        """Return the outputs of the last layer, and the last states of all layers.

        States are of shape [layers * directions, batch, hidden]; an LSTM has a pair of them.
        """
        given = self._given(initial_states)
        finals: list[Any] = []
        outputs = inputs
        for number, layer in enumerate(self):
            if number and self.dropout:
                outputs = F.dropout(outputs, self.dropout, training=self.training)
            outputs, last = layer(outputs, given[number], sequence_length)
            finals += [last] if self.num_directions == 1 else list(last)
        if self.state_components == 1:
            return outputs, _layers.stack(finals, axis=0)
        return outputs, tuple(_layers.stack([s[i] for s in finals], axis=0) for i in range(2))

    def _given(self, states: Any) -> Sequence[Any]:
        """Return the initial states of each layer."""
        if states is None:
            return [None] * len(self)
        parts = [states] if self.state_components == 1 else list(states)
        count = len(self) * self.num_directions
        split_up = [_layers.unstack(part, axis=0, num=count) for part in parts]
        single = [s[0] if len(s) == 1 else tuple(s) for s in zip(*split_up, strict=True)]
        if self.num_directions == 1:
            return single
        return list(zip(single[::2], single[1::2], strict=True))


class SimpleRNN(_Stack):
    """Stacked simple recurrent layers."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        sizes = (input_size, hidden_size, num_layers, direction, time_major, dropout)
        super().__init__(SimpleRNNCell, *sizes, attrs, activation=activation)


class _GatedStack(_Stack):
    """A stack of cells without further settings."""

    _cell: type[_GatedCell]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        sizes = (input_size, hidden_size, num_layers, direction, time_major, dropout)
        super().__init__(self._cell, *sizes, attrs)


class LSTM(_GatedStack):
    """Stacked LSTM layers."""

    _cell = LSTMCell


class GRU(_GatedStack):
    """Stacked GRU layers."""

    _cell = GRUCell


export_defined(globals())
