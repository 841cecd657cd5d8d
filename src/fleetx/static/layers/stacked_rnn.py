"""GRU and LSTM networks of several layers, in one or both directions: Fluid's `contrib`.

Layers run inside one StaticRNN per direction: each step goes through all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fleetx.static import layers
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.nn import dropout
from fleetx.static.layers.rnn_cells import GRUCell, LSTMCell, suffixed
from fleetx.static.layers.static_rnn import StaticRNN
from fleetx.static.layers.structure import select_rows

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]

Activation = Callable[[Variable], Variable] | None


class BasicGRUUnit:
    """One step of a gated recurrent unit: `unit(input, pre_hidden)` returns the new state."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation = None,
        activation: Activation = None,
        dtype: Any = "float32",
    ) -> None:
        self._cell = GRUCell(
            hidden_size, param_attr, bias_attr, gate_activation, activation, dtype, name_scope
        )

    def __call__(self, input: Variable, pre_hidden: Variable) -> Variable:
        """Return the new state."""
        return self._cell(input, pre_hidden)[0]


class BasicLSTMUnit:
    """One step of a long short-term memory: `unit(input, pre_hidden, pre_cell)`."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation = None,
        activation: Activation = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
    ) -> None:
        attrs, functions = (param_attr, bias_attr), (gate_activation, activation)
        self._cell = LSTMCell(hidden_size, *attrs, *functions, forget_bias, dtype, name_scope)

    def __call__(
        self, input: Variable, pre_hidden: Variable, pre_cell: Variable
    ) -> tuple[Variable, Variable]:
        """Return the new state and cell."""
        hidden, cell = self._cell(input, [pre_hidden, pre_cell])[1]
        return hidden, cell


class _Network:
    """Base of both networks; `make_unit(name, param_attr, bias_attr)` returns a layer's unit."""

    def __init__(
        self,
        make_unit: Callable[[str, Any, Any], Callable[..., Any]],
        dropout: Callable[[Variable], Variable] | None,
        name: str,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool,
        param_attr: Any,
        bias_attr: Any,
    ) -> None:
        self.size, self.layers, self.dropout = hidden_size, num_layers, dropout
        directions = [("_layers_", "fw")] + [("_reverse_layers_", "bw")] * bidirectional
        self.units = [
            [
                make_unit(
                    f"{name}{word}{i}",
                    suffixed(param_attr, f"_{short}_w_{i}"),
                    suffixed(bias_attr, f"_{short}_b_{i}"),
                )
                for i in range(num_layers)
            ]
            for word, short in directions
        ]

    def run(
        self,
        input: Variable,
        inits: Sequence[Variable | None],
        sequence_length: Variable | None,
        batch_first: bool,
    ) -> tuple[Variable, ...]:
        """Return the outputs of the last layer, and each kind of state after the last step."""
        x = layers.transpose(input, [1, 0, 2]) if batch_first else input
        mask = None
        if sequence_length is not None:
            steps = layers.shape(x)[0]
            mask = layers.sequence_mask(sequence_length, maxlen=steps, dtype="float32")
            mask = layers.transpose(mask, [1, 0])
        shape = [self.layers, len(self.units), -1, self.size]
        starts = [None if v is None else layers.reshape(v, shape) for v in inits]
        out, last = self._direction(x, mask, starts, 0)
        if len(self.units) == 2:
            back = layers.reverse(x, axis=[0])
            back_mask = None if mask is None else layers.reverse(mask, axis=[0])
            back_out, back_last = self._direction(back, back_mask, starts, 1)
            out = layers.concat([out, layers.reverse(back_out, axis=[0])], axis=2)
            last = [
                layers.reshape(layers.concat([a, b], axis=1), [2 * self.layers, -1, self.size])
                for a, b in zip(last, back_last, strict=True)
            ]
        return (layers.transpose(out, [1, 0, 2]) if batch_first else out, *last)

    def _direction(
        self, x: Variable, mask: Variable | None, starts: Sequence[Variable | None], way: int
    ) -> tuple[Variable, list[Variable]]:
        """Run all layers over the steps; return outputs and last states [layers, batch, size]."""
        network = StaticRNN()
        first = [
            [None if start is None else start[i, way] for start in starts]
            for i in range(self.layers)
        ]
        with network.step():
            step = network.step_input(x)
            going_on = None if mask is None else network.step_input(mask)
            for unit, inits in zip(self.units[way], first, strict=True):
                old = [self._memory(network, x, init) for init in inits]
                new = unit(step, *old)
                new = list(new) if isinstance(new, tuple) else [new]
                if going_on is not None:
                    new = [select_rows(going_on, b, a) for a, b in zip(old, new, strict=True)]
                for a, b in zip(old, new, strict=True):
                    network.update_memory(a, b)
                    network.step_output(b)
                step = new[0] if self.dropout is None else self.dropout(new[0])
            network.step_output(step)
        *states, out = network()
        last = [
            layers.reshape(
                layers.concat([s[-1] for s in states[kind :: len(starts)]], axis=0),
                [self.layers, -1, self.size],
            )
            for kind in range(len(starts))
        ]
        return out, last

    def _memory(self, network: StaticRNN, x: Variable, init: Variable | None) -> Variable:
        if init is not None:
            return network.memory(init=init)
        return network.memory(batch_ref=x, shape=[-1, self.size], ref_batch_dim_idx=1)


def _dropout(probability: float | None, **options: Any) -> Callable[[Variable], Variable] | None:
    if not probability:
        return None
    return lambda x: dropout(x, dropout_prob=probability, **options)


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float | None = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation = None,
    activation: Activation = None,
    dtype: Any = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, ...]:
    """Run a GRU network; return its outputs and the last states [layers * directions, batch, size].

    Args:
        input: [batch, steps, width], or [steps, batch, width] without `batch_first`.
        init_hidden: the initial states [layers * directions, batch, size]; zeros by default.
        hidden_size: the size of a state.
        num_layers: the number of layers.
        sequence_length: the number of steps of each instance; all by default.
        dropout_prob: the probability of dropping a layer's output.
        bidirectional: whether a second network runs in reverse.
        batch_first: the layout of input and outputs.
        param_attr: the weights' attributes; names get the direction and the layer appended.
        bias_attr: the biases' attributes, named in the same way.
        gate_activation: the layer applied to the gates, sigmoid by default.
        activation: the layer applied to the candidate, tanh by default.
        name: the prefix of the parameters' names.
    """

    def unit(name: str, param_attr: Any, bias_attr: Any) -> BasicGRUUnit:
        return BasicGRUUnit(
            name, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype
        )

    shape = (name, hidden_size, num_layers, bidirectional)
    network = _Network(unit, _dropout(dropout_prob), *shape, param_attr, bias_attr)
    return network.run(input, [init_hidden], sequence_length, batch_first)


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float | None = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation = None,
    activation: Activation = None,
    forget_bias: float = 1.0,
    dtype: Any = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, ...]:
    """Run an LSTM network; return its outputs, the last states and the last cells.

    See `basic_gru` for the arguments; `init_cell` holds the initial cell states, and
    `forget_bias` is added to the forget gate.
    """

    def unit(name: str, param_attr: Any, bias_attr: Any) -> BasicLSTMUnit:
        functions = (gate_activation, activation)
        return BasicLSTMUnit(
            name, hidden_size, param_attr, bias_attr, *functions, forget_bias, dtype
        )

    shape = (name, hidden_size, num_layers, bidirectional)
    dropout = _dropout(dropout_prob, dropout_implementation="upscale_in_train")
    network = _Network(unit, dropout, *shape, param_attr, bias_attr)
    return network.run(input, [init_hidden, init_cell], sequence_length, batch_first)
