"""LocalSGD as ops of a program: a step counter, a conditional block, and in it the average.

    snapshot - parameter, summed over workers, divided by their number, taken off the snapshot

Names are Paddle's: `k_steps`, `begin_step`, `last_step`, `<parameter>@SNAPSHOT`, and `avg_loss`,
`loss_0`, `lr_0` where the interval follows the loss. The sums follow each other, so that
the engine joins them into few large messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from fleetx import comm
from fleetx.comm.gradient_all_reduce import GradientAllReduce, GradientExchange
from fleetx.static import layers, unique_name
from fleetx.static.graph.default_programs import program_guard
from fleetx.static.graph.dtypes import is_floating
from fleetx.static.graph.operator import OpRole
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.control_flow import ConditionalBlock
from fleetx.static.optimizer.gradient_merge_optimizer import CONDITION
from fleetx.static.run.scope import Scope
from fleetx.step.program_step import ProgramParameterSync, WrittenUpdate
from fleetx.step.technique import Job
from fleetx.techniques.parameter_average import AverageConfig, OuterStep

SNAPSHOT = "@SNAPSHOT"
VELOCITY = "@OUTER_VELOCITY"
_STEP, _LAST_STEP = "local_sgd_step", "last_step"
_NO_STATE = ("Param", "Grad", "LearningRate")


class LocalSgdProgram(ProgramParameterSync):
    """Writes the average of parameters after the update of a program."""

    def __init__(
        self,
        job: Job,
        config: AverageConfig,
        k_steps: int,
        *,
        every_run: bool = False,
    ) -> None:
        self._workers, self._share = job.workers, job.share
        self._config = config
        self._every_run = every_run
        self.counters = () if every_run else (_STEP, _LAST_STEP)
        self.save_wait = config.save_wait
        self._k_steps = k_steps
        self._parameters: list[str] = []
        self._momenta: list[str] = []
        self._outer = OuterStep.from_config(config)
        half = job.all_reduce.dtype
        self._half = None if half is None else str(half).removeprefix("torch.")
        if comm.is_connected() or self._share:  # the group of an elastic job forms later
            # Half precision stands in the program, where only differences are cast.
            whole = replace(job.all_reduce, dtype=None)
            self.exchange = GradientExchange(
                GradientAllReduce(whole), limit_mb=job.bucket_mb, last_mb=job.last_bucket_mb
            )

    def write(self, written: WrittenUpdate) -> None:
        """Append the ops."""
        main, startup, loss = written.main, written.startup, written.loss
        block = main.global_block()
        made = {name for op in block.ops for name in op.output_arg_names}
        parameters = [
            p
            for p in main.all_parameters()
            if p.name in made and is_floating(p.dtype) and not getattr(p, "is_distributed", 0)
        ]
        momenta = _momenta(main) if self._config.average_momentum else []
        self._parameters = [p.name for p in parameters]
        self._momenta = [m.name for m in momenta]
        with program_guard(main, startup), main.optimized_guard([]):
            if self._every_run:
                _append_mean(block, [*parameters, *momenta], self._workers)
                return
            pairs = [(p, _create_copy(p, SNAPSHOT, main, startup)) for p in parameters]
            self._append_counted(main, startup, pairs, momenta, loss)

    def count(self, scope: Scope) -> int:
        """Return the number of updates so far; where the script counts itself (`every_run`), nobody
        knows."""
        return 0 if self._every_run else _number(scope, _STEP)

    def behind(self, scope: Scope) -> int:
        """Return how many updates there were since the last average, 0 if unknown."""
        return max(0, self.count(scope) - _number(scope, _LAST_STEP))

    @torch.no_grad()
    def synchronize(self, scope: Scope) -> None:
        """Average the parameters in a scope now, without an outer step."""
        if not self._every_run and not any(comm.all_gather(torch.tensor(self.behind(scope)))):
            return
        for name in [*self._parameters, *self._momenta]:
            value = scope.var(name).value
            torch.mul(comm.all_reduce(value), 1.0 / self._workers, out=value)
        for name in self._parameters:
            snapshot = scope.find_var(name + SNAPSHOT)
            if snapshot is not None and snapshot.is_initialized():
                snapshot.value.copy_(scope.var(name).value)
        if not self._every_run:
            scope.var(_LAST_STEP).value.copy_(scope.var(_STEP).value)

    def _append_counted(
        self,
        main: Program,
        startup: Program,
        pairs: Sequence[tuple[Any, Variable]],
        momenta: Sequence[Variable],
        loss: Variable,
    ) -> None:
        """Count updates and average when it is time."""
        step = _create_number(_STEP, 0)
        k_steps = _create_number("k_steps", self._k_steps)
        begin_step = _create_number("begin_step", self._config.begin_step)
        last_step = _create_number(_LAST_STEP, self._config.begin_step)
        updated = main.global_block().vars.get(CONDITION)  # of gradient_merge
        if updated is None:
            layers.increment(step)
        else:
            with ConditionalBlock([updated], is_scalar_condition=True).block():
                layers.increment(step)
        begins = layers.less_equal(step, begin_step)
        reached = layers.greater_equal(step - last_step, k_steps)
        later = layers.logical_and(layers.logical_not(begins), reached)
        if updated is not None:
            begins = layers.logical_and(begins, updated)
            later = layers.logical_and(later, updated)
        self._append_start(main, step, updated, loss)
        if self._outer.is_plain:
            due = layers.logical_or(begins, later)
            with ConditionalBlock([due], is_scalar_condition=True).block():
                self._append_average(main, pairs, momenta, {})
                layers.assign(step, last_step)
        else:
            velocities = {
                p.name: _create_copy(p, VELOCITY, main, startup, zero=True)
                for p, _ in pairs
                if p.trainable
            }
            for due, outer in ((begins, {}), (later, velocities)):
                with ConditionalBlock([due], is_scalar_condition=True).block():
                    self._append_average(main, pairs, momenta, outer)
                    layers.assign(step, last_step)
        self._append_end(main, later, k_steps, loss)

    def _append_start(
        self, main: Program, step: Variable, updated: Variable | None, loss: Variable
    ) -> None:
        """Write what precedes the average; `updated` tells whether this run updates,
        None: all do."""

    def _append_end(
        self, main: Program, averaged: Variable, k_steps: Variable, loss: Variable
    ) -> None:
        """Write what follows an average after `begin_step`; `averaged` tells if there was one."""

    def _append_average(
        self,
        main: Program,
        pairs: Sequence[tuple[Any, Variable]],
        momenta: Sequence[Variable],
        velocities: Mapping[str, Variable],
    ) -> None:
        """Write one average into the current block; parameters change only when all is there."""
        block = main.current_block()
        differences, travelling = [], []
        for parameter, snapshot in pairs:
            difference = layers.elementwise_sub(snapshot, parameter)
            differences.append(difference)
            is_half = self._half is not None and parameter.trainable
            travelling.append(layers.cast(difference, self._half) if is_half else difference)
        _append_sums(block, [*travelling, *momenta])
        for (parameter, snapshot), difference, sum_ in zip(
            pairs, differences, travelling, strict=True
        ):
            if sum_ is not difference:
                sum_ = layers.cast(sum_, difference.dtype)
            change = layers.scale(sum_, scale=self._per_worker(main))
            if parameter.name in velocities:
                change = self._append_outer(change, velocities[parameter.name])
            _append(block, "elementwise_sub", {"X": snapshot, "Y": change}, parameter)
            layers.assign(parameter, snapshot)
        for each in momenta:
            self._append_division(main, each)

    def _per_worker(self, main: Program) -> Any:
        """Return 1 / the number of workers, in an elastic job a variable."""
        return main.global_block().var(self._share) if self._share else 1.0 / self._workers

    def _append_division(self, main: Program, sum_: Variable) -> None:
        """Divide a sum by the number of workers, in place."""
        inputs = {"X": sum_}
        if self._share:
            inputs["ScaleTensor"] = main.global_block().var(self._share)
        _append(main.current_block(), "scale", inputs, sum_, scale=1.0 / self._workers)

    def _append_outer(self, difference: Variable, velocity: Variable) -> Variable:
        """Write the outer step on a mean difference; return what to take off the snapshot."""
        block = difference.block
        change: Variable = block.create_var(
            name=unique_name.generate("outer_step"), shape=difference.shape, dtype=difference.dtype
        )
        block.append_op(
            type="outer_step",
            inputs={"X": [difference.name], "Velocity": [velocity.name]},
            outputs={"Out": [change.name], "VelocityOut": [velocity.name]},
            attrs={**asdict(self._outer), "op_role": OpRole.Optimize},
        )
        return change


class AdaptiveLocalSgdProgram(LocalSgdProgram):
    """Also writes how the next interval follows from loss and learning rate."""

    def __init__(
        self,
        job: Job,
        config: AverageConfig,
        k_steps: int,
        most_steps: int,
    ) -> None:
        super().__init__(job, config, k_steps)
        self._most_steps = most_steps

    def _append_start(
        self, main: Program, step: Variable, updated: Variable | None, loss: Variable
    ) -> None:
        self._loss_0 = _create_number("loss_0", 0.0, "float32")
        self._lr_0 = _create_number("lr_0", 0.0, "float32")
        self._avg_loss = _create_number("avg_loss", 0.0, loss.dtype)
        self._rate = _learning_rate(main)
        one = layers.fill_constant([1], "int64", 1)
        is_first = layers.equal(step, one)
        if updated is not None:
            is_first = layers.logical_and(is_first, updated)
        with ConditionalBlock([is_first], is_scalar_condition=True).block():
            self._append_avg_loss(main, loss)
            layers.assign(layers.cast(self._avg_loss, "float32"), self._loss_0)
            layers.assign(layers.cast(self._rate, "float32"), self._lr_0)

    def _append_avg_loss(self, main: Program, loss: Variable) -> None:
        block, mean = main.current_block(), self._avg_loss
        # Not in place: the script may fetch its own loss.
        attrs = {"ring_id": 0, "use_calc_stream": True}
        _append(block, "c_allreduce_sum", {"X": loss}, mean, **attrs)
        self._append_division(main, mean)

    def _append_end(
        self, main: Program, averaged: Variable, k_steps: Variable, loss: Variable
    ) -> None:
        with ConditionalBlock([averaged], is_scalar_condition=True).block():
            self._append_avg_loss(main, loss)
            inputs = {
                "Loss": self._avg_loss,
                "Rate": self._rate,
                "FirstLoss": self._loss_0,
                "FirstRate": self._lr_0,
                "KSteps": k_steps,
            }
            main.current_block().append_op(
                type="adaptive_interval",
                inputs={slot: [var.name] for slot, var in inputs.items()},
                outputs={"KStepsOut": [k_steps.name]},
                attrs={
                    "init_k_steps": self._k_steps,
                    "most_steps": self._most_steps,
                    "op_role": OpRole.Optimize,
                },
            )


def _number(scope: Scope, name: str) -> int:
    """Return a counter of a scope, 0 before the startup program has run."""
    var = scope.find_var(name)
    return int(var.value.item()) if var is not None and var.is_initialized() else 0


def _create_number(name: str, value: float, dtype: Any = "int64") -> Variable:
    """Return a persistable number that the startup program sets."""
    return layers.create_global_var([1], value, dtype, persistable=True, name=name)


def _create_copy(
    parameter: Any, suffix: str, main: Program, startup: Program, *, zero: bool = False
) -> Variable:
    """Return a persistable variable like a parameter, which starts equal to it or as zeros."""
    made = [
        program.global_block().create_var(
            name=parameter.name + suffix,
            shape=parameter.shape,
            dtype=parameter.dtype,
            persistable=True,
            stop_gradient=True,
        )
        for program in (main, startup)
    ]
    block = startup.global_block()
    block.append_op(type="assign", inputs={"X": [parameter.name]}, outputs={"Out": [made[1].name]})
    if zero:
        _append(block, "scale", {"X": made[1]}, made[1], scale=0.0)
    return made[0]


def _append(block: Any, kind: str, inputs: dict[str, Variable], output: Any, **attrs: Any) -> None:
    block.append_op(
        type=kind,
        inputs={slot: [var.name] for slot, var in inputs.items()},
        outputs={"Out": [output.name]},
        attrs={**attrs, "op_role": OpRole.Optimize},
    )


def _append_sums(block: Any, variables: Sequence[Any]) -> None:
    """Sum variables over workers; next to each other, the engine joins them."""
    for var in variables:
        _append(block, "c_allreduce_sum", {"X": var}, var, ring_id=0, use_calc_stream=False)
    if variables:
        _append(block, "c_sync_comm_stream", {"X": variables[-1]}, variables[-1], ring_id=0)


def _append_mean(block: Any, variables: Sequence[Any], workers: int) -> None:
    """Average variables over workers in every run (1.x: the script chooses when to run it)."""
    _append_sums(block, variables)
    for var in variables:
        _append(block, "scale", {"X": var}, var, scale=1.0 / workers)


def _momenta(main: Program) -> list[Variable]:
    """Return the persistable inputs of update ops that are shaped like the parameter."""
    found: dict[str, Variable] = {}
    for block in main.blocks:
        for op in block.ops:
            if not (op.input("Param") and op.input("Grad")):
                continue
            shape = block.var_recursive(op.input("Param")[0]).shape
            for slot in op.input_names:
                for name in op.input(slot) if slot not in _NO_STATE else ():
                    var = block.find_var(name)
                    if var is not None and var.persistable and var.shape == shape:
                        found[name] = var
    return [var for var in found.values() if is_floating(var.dtype)]


def _learning_rate(main: Program) -> Variable:
    """Return the rate of an update; a factor of a parameter's own drops out of the formula."""
    block = main.global_block()
    for each in main.blocks:
        for op in each.ops:
            for name in op.input("LearningRate"):
                if block.has_var(name):
                    return block.var(name)
    raise ValueError(
        "adaptive_localsgd follows the learning rate, but no update of this program has one: use "
        "localsgd."
    )
