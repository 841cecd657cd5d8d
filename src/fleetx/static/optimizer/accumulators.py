"""The state of an optimizer: accumulators such as velocities and moments, one set per parameter.

They are persistable variables named `<parameter>_<accumulator>_0`, so they are saved and loaded
with the program's other persistables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.run.scope import global_scope


@dataclass(frozen=True)
class Accumulator:
    """An accumulator: its name, its slots in the update op, its shape if not the parameter's."""

    name: str
    slot: str
    out: str | None = ""  # the output slot: `<slot>Out` if empty; None if the op only reads it
    shape: tuple[int, ...] | None = None

    @property
    def out_slot(self) -> str | None:
        """The output slot, or None."""
        return f"{self.slot}Out" if self.out == "" else self.out


class StateMixin:
    """The part of an optimizer that manages its accumulators."""

    _name: str | None
    _accumulators: dict[str, dict[str, Variable]]
    _opti_name_list: list[str]
    _learning_rate: Any
    helper: LayerHelper | None

    def _full_name(self, name: str) -> str:
        return name if self._name is None else f"{self._name}_{name}"

    def _add_accumulator(
        self,
        name: str,
        param: Any,
        dtype: Any = None,
        fill_value: float = 0.0,
        shape: Any = None,
        type: Any = None,
        device: Any = None,
    ) -> Variable:
        """Create an accumulator of a parameter in both default programs."""
        name = self._full_name(name)
        if param.name in self._accumulators.get(name, {}):
            raise ValueError(f"Accumulator {name} already exists for parameter {param.name}.")
        if self.helper is None:
            self.helper = LayerHelper(self.__class__.__name__)
        var_name = unique_name.generate(f"{param.name}_{name}")
        self._opti_name_list.append(var_name)
        variable = self.helper.create_global_variable(
            name=var_name,
            persistable=True,
            dtype=dtype or param.dtype,
            type=param.type if type is None else type,
            shape=param.shape if shape is None else shape,
            belong_to_optimizer=True,
        )
        self.helper.set_variable_initializer(
            variable, initializer=Constant(value=float(fill_value))
        )
        self._accumulators[name][param.name] = variable
        return variable

    def _get_accumulator(self, name: str, param: Any) -> Variable:
        """Return an accumulator of a parameter."""
        name = self._full_name(name)
        if param.name not in self._accumulators.get(name, {}):
            raise ValueError(f"Accumulator {name} does not exist for parameter {param.name}.")
        return self._accumulators[name][param.name]

    def get_opti_var_name_list(self) -> list[str]:
        """Return the names of all accumulators."""
        return self._opti_name_list

    def state_dict(self) -> dict[str, Any]:
        """Return the accumulators' values from the global scope, and the scheduler's state."""
        state: dict[str, Any] = {}
        for name in self._opti_name_list:
            found = global_scope().find_var(name)
            if found is None or not found.is_initialized():
                raise RuntimeError(
                    f"accumulator {name!r} has no value yet; run the startup program first."
                )
            state[name] = found.get_tensor().numpy()
        if hasattr(self._learning_rate, "state_dict"):
            state["LR_Scheduler"] = self._learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the accumulators in the global scope, all or none, and the scheduler's state."""
        values = {}
        for accumulators in self._accumulators.values():
            for variable in accumulators.values():
                if variable.name not in state_dict:
                    raise ValueError(f"the state has no accumulator {variable.name!r}.")
                value = np.asarray(state_dict[variable.name])
                if value.shape != tuple(variable.shape):
                    raise ValueError(
                        f"accumulator {variable.name!r} has shape {tuple(variable.shape)}, "
                        f"but the state holds {value.shape}."
                    )
                values[variable.name] = value
        for name, value in values.items():
            global_scope().var(name).get_tensor().set(value)
        if "LR_Scheduler" in state_dict and hasattr(self._learning_rate, "set_state_dict"):
            self._learning_rate.set_state_dict(state_dict["LR_Scheduler"])

    set_dict = set_state_dict
