"""Averages of parameters for evaluation: ExponentialMovingAverage and ModelAverage.

`with average.apply(executor):` swaps in the averages, and restores the parameters afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from fleetx.static import layers, unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.default_programs import default_main_program, program_guard
from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.optimizer.base import Optimizer


class _Swapping:
    """Programs that swap in the averages, and restore the parameters."""

    @staticmethod
    def _backups(
        prefix: str, suffix: str, parameters: Iterable[Parameter] | None = None
    ) -> list[tuple[Parameter, Variable]]:
        """Return the averaged parameters, each with a variable that backs it up."""
        found = []
        for param in parameters or default_main_program().global_block().all_parameters():
            if param.do_model_average is not False:
                name = unique_name.generate(f"{prefix}{param.name}.{suffix}")
                settings = {"shape": param.shape, "dtype": param.dtype, "stop_gradient": True}
                found.append((param, param.block.create_var(name=name, **settings)))
        return found

    def _create_programs(self, backups: list[tuple[Parameter, Variable]]) -> None:
        """Create both programs; the one that applies the averages is still empty."""
        self.apply_program = Program()
        self.restore_program = Program()
        block = self.restore_program.global_block()
        with program_guard(self.restore_program, Program()):
            for param, backup in backups:
                layers.assign(
                    input=block.clone_variable(backup), output=block.clone_variable(param)
                )

    def apply(self, executor: Any, need_restore: bool = True) -> Any:
        """Return a context in which the parameters are the averages."""
        return self._swapped(executor, need_restore)

    @contextlib.contextmanager
    def _swapped(self, executor: Any, need_restore: bool) -> Iterator[None]:
        executor.run(self.apply_program)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Any) -> None:
        """Restore the parameters."""
        executor.run(self.restore_program)


class ExponentialMovingAverage(_Swapping):
    """ema = decay * ema + (1 - decay) * parameter, bias-corrected when applied.

    Call `update()` after the optimizer's minimize. With `thres_steps`, a step count, the decay is
    at most (1 + steps) / (10 + steps).
    """

    _step_counter_name = "@EMA_STEP_COUNTER@"

    def __init__(
        self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None
    ) -> None:
        self._decay = decay
        self._thres_steps = thres_steps
        self._name = name or ""
        self._decay_var = self._create_decay()
        self._params_tmps = self._backups(self._name, "ema_tmp")
        self._ema_vars: dict[str, Variable] = {}
        for param, backup in self._params_tmps:
            with (
                param.block.program.optimized_guard([param, backup]),
                name_scope("moving_average"),
            ):
                self._ema_vars[param.name] = self._create_average(param)
        self._create_programs(self._params_tmps)
        # The step counter starts in the default startup program.
        with program_guard(self.apply_program):
            self._append_apply()

    def _create_decay(self) -> Variable:
        with default_main_program().lr_schedule_guard():
            name = "scheduled_ema_decay_rate"
            decay = layers.create_global_var([1], self._decay, "float32", True, name=name)
            if self._thres_steps is not None:
                steps = layers.cast(self._thres_steps, "float32")
                limit = layers.fill_constant(shape=[1], dtype="float32", value=self._decay)
                grown = (steps + 1.0) / (steps + 10.0)
                layers.assign(layers.elementwise_min(grown, limit), decay)
        return decay

    def _create_average(self, param: Parameter) -> Variable:
        name = unique_name.generate(f"{self._name}{param.name}_ema")
        return layers.create_global_var(param.shape, 0.0, param.dtype, True, name=name)

    def _append_apply(self) -> None:
        block = self.apply_program.global_block()
        name = self._step_counter_name
        counter = layers.create_global_var([1], 0, "int64", persistable=True, name=name)
        decay = block.clone_variable(self._decay_var)
        weight = 1.0 - layers.elementwise_pow(decay, layers.cast(counter, "float32"))
        # Before the first update both average and weight are zero.
        least = layers.fill_constant(shape=[1], dtype="float32", value=1e-30)
        weight = layers.elementwise_max(weight, least)
        for param, backup in self._params_tmps:
            target = block.clone_variable(param)
            average = block.clone_variable(self._ema_vars[param.name])
            layers.assign(input=target, output=block.clone_variable(backup))
            layers.assign(input=layers.elementwise_div(average, weight), output=target)

    def update(self) -> None:
        """Append the ops that update the averages."""
        layers.autoincreased_step_counter(counter_name=self._step_counter_name)
        for param, backup in self._params_tmps:
            average = self._ema_vars[param.name]
            with (
                param.block.program.optimized_guard([param, backup]),
                name_scope("moving_average"),
            ):
                value = average * self._decay_var + param * (1 - self._decay_var)
                layers.assign(input=value, output=average)


class ModelAverage(_Swapping, Optimizer):
    """The mean of each parameter over the last steps.

    The window grows with training: at least `min_average_window` steps, at most
    `max_average_window`, and `average_window_rate` times the number of updates in between.
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: Any = None,
        name: str | None = None,
        parameters: Iterable[Parameter] | None = None,
    ) -> None:
        super().__init__(0.0, regularization=regularization, name=name)
        self.average_window = average_window_rate
        self.min_average_window = min_average_window
        self.max_average_window = max_average_window
        self.params_grads = self._backups("", "tmp", parameters)
        for param, backup in self.params_grads:
            with param.block.program.optimized_guard([param, backup]), name_scope("move_average"):
                self._append_average_accumulate_op(param)
        self._create_programs(self.params_grads)
        with program_guard(self.apply_program, Program()):
            for param, backup in self.params_grads:
                self._append_apply(param, backup)

    def _append_average_accumulate_op(self, param: Parameter) -> None:
        self.helper = LayerHelper("average_accumulate")
        state = {n: self._add_accumulator(n, param) for n in ("sum_1", "sum_2", "sum_3")}
        for name in ("num_accumulates", "old_num_accumulates", "num_updates"):
            state[name] = self._add_accumulator(name, param, dtype="int64", shape=[1])
        self.helper.append_op(
            type="average_accumulates",
            inputs={"param": param, **{f"in_{n}": v for n, v in state.items()}},
            outputs={f"out_{n}": v for n, v in state.items()},
            attrs={
                "average_window": self.average_window,
                "min_average_window": self.min_average_window,
                "max_average_window": self.max_average_window,
            },
            stop_gradient=True,
        )

    def _append_apply(self, param: Parameter, backup: Variable) -> None:
        block = self.apply_program.global_block()

        def cloned(name: str) -> Variable:
            return block.clone_variable(self._get_accumulator(name, param))

        target = block.clone_variable(param)
        layers.assign(input=target, output=block.clone_variable(backup))
        count = layers.sum(x=[cloned("num_accumulates"), cloned("old_num_accumulates")])
        total = layers.sum(x=[cloned("sum_1"), cloned("sum_2"), cloned("sum_3")])
        mean = layers.elementwise_div(x=total, y=layers.cast(count, param.dtype))
        layers.assign(input=mean, output=target)
