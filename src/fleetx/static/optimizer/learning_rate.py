"""The learning rate of an optimizer: a number, a Variable of the program, or a scheduler.

A number or a scheduler becomes a persistable variable `learning_rate_0` of shape [1]. A scheduler's
value is written into it before every run of the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.dtypes import VarType, to_torch
from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.run.scope import Scope, global_scope

if TYPE_CHECKING:
    from fleetx.static.lr.scheduler import LRScheduler

    Rate = float | Variable | LRScheduler


def is_scheduler(value: Any) -> bool:
    """Return whether a learning rate is a scheduler of `fleetx.static.lr`."""
    from fleetx.static.lr import LRScheduler

    return isinstance(value, LRScheduler)


def checked(value: Any, owner: str) -> Any:
    """Return a learning rate as float, Variable or scheduler; reject anything else."""
    if value is None:
        raise ValueError(f"learning_rate is not set: {owner} needs one.")
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, float | Variable) or is_scheduler(value):
        return value
    raise TypeError(
        f"learning_rate of {owner} must be a float, a Variable or an LRScheduler, "
        f"not {type(value).__name__}."
    )


class WriteSchedule:
    """Hook that writes a scheduler's value into its variable before each run."""

    def __init__(self, scheduler: Any, name: str, dtype: Any) -> None:
        self.scheduler = scheduler
        self.name = name
        self.dtype = to_torch(dtype)

    def __call__(self, scope: Scope) -> None:
        """Update the variable in the scope."""
        variable = scope.find_var(self.name) or scope.var(self.name)
        value = float(self.scheduler())
        if isinstance(variable.value, torch.Tensor):
            variable.value.fill_(value)
        else:
            variable.value = torch.full((1,), value, dtype=self.dtype)


class LearningRateMixin:
    """The part of an optimizer that manages its learning rate."""

    _learning_rate: Any
    _learning_rate_map: dict[Program, Variable]
    _dtype: Any

    def global_learning_rate(self, program: Program | None = None) -> Any:
        """Return the learning rate variable of a program (the default main program), or None."""
        return self._learning_rate_map.get(default_main_program() if program is None else program)

    _global_learning_rate = global_learning_rate

    def use_learning_rate_of(self, program: Program, copy: Program) -> None:
        """Register the learning rate variable of a copy of a program."""
        known = self._learning_rate_map.get(program)
        if known is not None:
            self._learning_rate_map[copy] = copy.global_block().vars.get(known.name, known)

    def _create_global_learning_rate(self) -> None:
        """Create the learning rate variable in the default programs, unless it exists."""
        program = default_main_program()
        if program in self._learning_rate_map:
            return
        if isinstance(self._learning_rate, Variable):
            raise TypeError(
                f"learning rate {self._learning_rate.name!r} belongs to another program: "
                "create the optimizer under the program_guard in which it is used."
            )
        scheduled = not isinstance(self._learning_rate, float)
        value = float(self._learning_rate() if scheduled else self._learning_rate)
        helper = LayerHelper("global_var")
        variable = helper.create_global_variable(
            name=unique_name.generate("learning_rate"),
            shape=[1],
            dtype=VarType.FP32 if self._dtype is None else self._dtype,
            persistable=True,
            stop_gradient=True,
        )
        helper.set_variable_initializer(variable, initializer=Constant(value=value))
        self._learning_rate_map[program] = variable
        if scheduled:
            self._learning_rate._var_name = variable.name
            program.binding.before_run.append(
                WriteSchedule(self._learning_rate, variable.name, variable.dtype)
            )

    def _create_param_lr(self, param_and_grad: Any) -> Any:
        """Return the learning rate of a parameter: the global one times the parameter's factor."""
        factor = param_and_grad[0].optimize_attr["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        rate = self.global_learning_rate()
        if factor == 1.0:
            return rate
        guard = default_main_program().lr_schedule_guard(is_with_opt=True)
        with guard, name_scope("scale_with_param_lr"):
            return rate * factor

    def get_lr(self) -> float:
        """Return the learning rate of the next step."""
        if isinstance(self._learning_rate, Variable):
            found = global_scope().find_var(self._learning_rate.name)
            if found is None or not found.is_initialized():
                raise RuntimeError(
                    f"the learning rate variable {self._learning_rate.name!r} has no value yet; "
                    "run the program first."
                )
            return float(found.get_tensor().numpy().reshape(-1)[0])
        if isinstance(self._learning_rate, float):
            return self._learning_rate
        return float(self._learning_rate())

    current_step_lr = get_lr

    def set_lr(self, value: float) -> None:
        """Set the learning rate for the next steps; the optimizer's must be a number."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"set_lr takes a number, not {type(value).__name__}.")
        if not isinstance(self._learning_rate, float):
            raise RuntimeError(
                "set_lr would be overwritten: the learning rate comes from "
                f"{type(self._learning_rate).__name__}."
            )
        self._learning_rate = float(value)
        for variable in self._learning_rate_map.values():
            found = global_scope().find_var(variable.name)
            if found is not None and isinstance(found.value, torch.Tensor):
                found.value.fill_(value)
            # A startup program that has not run yet must not restore the old value.
            initial = default_startup_program().global_block().vars.get(variable.name)
            if initial is not None and initial.op is not None:
                initial.op.set_attr("value", float(value))

    def set_lr_scheduler(self, scheduler: Any) -> None:
        """Use a scheduler; call it before minimize."""
        if not is_scheduler(scheduler):
            raise TypeError(
                f"set_lr_scheduler takes an LRScheduler, not {type(scheduler).__name__}."
            )
        if self._learning_rate_map:
            raise RuntimeError("set_lr_scheduler must be called before minimize.")
        self._learning_rate = scheduler
