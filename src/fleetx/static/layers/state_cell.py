"""The cell of `contrib`'s decoders: named inputs and states, and how the next states are computed.

A decoder holds the states of the cell that it runs, in a memory or in an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.creation import fill_constant_batch_size_like


class InitState:
    """The initial value of a state: a variable, or a constant with the batch size of another."""

    def __init__(
        self,
        init: Variable | None = None,
        shape: list[int] | None = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> None:
        """Create a first value.

        Args:
            init: the value.
            shape: the shape of a constant, with -1 for the batch size.
            value: the constant.
            init_boot: a variable whose batch size the constant gets.
            need_reorder: whether a DynamicRNN sorts the rows as it sorts its sequences.
            dtype: the element type of a constant.
        """
        if init is None:
            if init_boot is None or shape is None:
                raise ValueError(
                    "InitState takes init, or init_boot (for the batch size) and the shape of a "
                    "constant."
                )
            init = fill_constant_batch_size_like(init_boot, shape, dtype, value)
        self.value = init
        self.need_reorder = need_reorder


class HeldState(Protocol):
    """A state as stored by a decoder."""

    def read(self) -> Variable:
        """Return the value at this step."""

    def write(self, value: Variable) -> None:
        """Set the value for the next step."""


class StateDecoder(Protocol):
    """The interface of a decoder that a cell uses."""

    def hold(self, init: InitState) -> HeldState:
        """Keep a state."""


class StateCell:
    """Named inputs and states, and a function from both to the next states."""

    def __init__(
        self,
        inputs: dict[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        """Create a cell.

        Args:
            inputs: names of inputs; `compute_state` takes their values.
            states: initial values by name.
            out_state: the name of the state that is the output.
            name: accepted.
        """
        for key, state in states.items():
            check_type(state, f"states[{key!r}]", InitState, "StateCell")
        if out_state not in states:
            raise ValueError(f"out_state {out_state!r} is not one of the states {list(states)}.")
        self.inputs = inputs
        self.state_names = list(states)
        self._first = dict(states)
        self._current: dict[str, Any] = dict(states)
        self._out_state = out_state
        self._decoder: StateDecoder | None = None
        self._held: dict[str, HeldState] = {}
        self._updater: Callable[[StateCell], Any] | None = None

    def enter(self, decoder: StateDecoder) -> None:
        """Attach the cell to a decoder, which stores the states."""
        if self._decoder is not None:
            raise ValueError("A StateCell can be used by only one decoder at a time.")
        self._decoder = decoder
        self._held = {}

    def leave(self) -> None:
        """Detach the cell from its decoder; the states start again from their initial values."""
        self._decoder = None
        self._current = dict(self._first)

    def _hold(self) -> None:
        if self._decoder is not None and not self._held:
            self._held = {name: self._decoder.hold(init) for name, init in self._first.items()}
            self._current = {name: held.read() for name, held in self._held.items()}

    def get_state(self, state_name: str) -> Any:
        """Return the current value of a state."""
        self._hold()
        if state_name not in self._current:
            raise ValueError(f"{state_name!r} is not one of the states {self.state_names}.")
        return self._current[state_name]

    def get_input(self, input_name: str) -> Variable:
        """Return the current value of an input."""
        value = self.inputs.get(input_name)
        if value is None:
            raise ValueError(f"The input {input_name!r} has no value: pass it to compute_state.")
        return value

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Set the next value of a state."""
        self._current[state_name] = state_value

    def state_updater(self, updater: Callable[[StateCell], Any]) -> Callable[[StateCell], Any]:
        """Register the function that computes the next states; a decorator."""
        self._updater = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Compute the next states from inputs."""
        self._hold()
        for name, value in inputs.items():
            if name not in self.inputs:
                raise ValueError(f"{name!r} is not one of the inputs {list(self.inputs)}.")
            self.inputs[name] = value
        if self._updater is None:
            raise RuntimeError("Register a function with state_updater before compute_state.")
        self._updater(self)

    def update_states(self) -> None:
        """Store the current values for the next step."""
        self._hold()
        for name, held in self._held.items():
            held.write(self._current[name])

    def out_state(self) -> Any:
        """Return the state that is the output."""
        return self._current[self._out_state]


export_defined(globals())
