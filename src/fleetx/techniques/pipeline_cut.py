"""Which stage of a pipeline each op of a training program belongs to.

The layers of a program name devices (`device_guard("gpu:1")`), whose numbers are the stages. What
follows from layers belongs to their stages: gradients, updates, and ops that name no device. Ops on
"gpu:all", and those that belong to no stage, such as a schedule of the learning rate, are on all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any

from fleetx.static.graph.op_names import reads_of, writes_of
from fleetx.static.graph.op_registry import EMPTY_NAME
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter
from fleetx.static.lowering.needed_ops import MARKERS

ALL = -1
"""The stage of what every worker has."""


class Phase(Enum):
    """When an op runs."""

    FORWARD = auto()
    BACKWARD = auto()
    UPDATE = auto()


def device_of(op: Operator) -> str:
    """Return the device that an op names, "" if none."""
    return str(op.attrs.get("op_device") or "")


def _number(device: str) -> int | None:
    """Return the number of a device such as "gpu:1"."""
    number = device.partition(":")[2]
    return int(number) if number.isdigit() else None


def devices_of(program: Program) -> list[int]:
    """Return the numbers of the devices that the layers of a program name, in order."""
    ops = program.global_block().ops
    found = {_number(device_of(op)) for op in ops if not op.op_role & OpRole.Optimize}
    return sorted(number for number in found if number is not None)


class StageMap:
    """The stages of the ops and variables of a training program."""

    def __init__(self, program: Program, update: int, pairs: Iterable[tuple[Any, Any]]) -> None:
        """`update` is the number of the first op after the backward pass; `pairs` are parameters
        with their gradients."""
        self._block = program.global_block()
        self.ops: list[Operator] = list(self._block.ops)
        self.phase = {op.uid: _phase(op, i >= update) for i, op in enumerate(self.ops)}
        self._numbers = {number: i for i, number in enumerate(devices_of(program))}
        self.stage: dict[int, int] = {}
        """The stage of each op, by its uid."""
        self.made: dict[str, int] = {}
        """The stage that computes a variable, of forward and backward."""
        self.home: dict[str, int] = {}
        """The stage that has a persistable variable; `ALL` if every worker has it."""
        self._readers: dict[str, list[Operator]] = {}
        for op in self.ops:
            for name in set(reads_of(op)):
                self._readers.setdefault(name, []).append(op)
        self._place(Phase.FORWARD)
        self._place(Phase.BACKWARD)
        self._place_parameters()
        self._check_order()
        self._place_updates({g.name: p.name for p, g in pairs if g is not None})

    @property
    def count(self) -> int:
        """The number of stages."""
        return len(self._numbers)

    def of(self, phase: Phase) -> list[Operator]:
        """Return the ops of a phase."""
        return [op for op in self.ops if self.phase[op.uid] is phase]

    def is_kept(self, name: str) -> bool:
        """Return whether a variable keeps its value between runs."""
        var = self._block.find_var(name)
        return var is not None and var.persistable

    # -- forward and backward -----------------------------------------------------------
    def _place(self, phase: Phase) -> None:
        open_ops = []
        for op in self.of(phase):
            stage = self._given(op)
            if stage is None and not self._waits(op):
                stages = {self.made.get(n, ALL) for n in reads_of(op)} - {ALL}
                if phase is Phase.FORWARD:
                    stage = max(stages, default=None)
                elif len(stages) == 1:
                    stage = stages.pop()
            if stage is None:
                open_ops.append(op)
            else:
                self._put(op, stage)
        for op in reversed(open_ops):  # to those that use it
            users = (u for n in writes_of(op) for u in self._readers.get(n, ()))
            found = {self.stage.get(user.uid, ALL) for user in users} - {ALL}
            self._put(op, min(found, default=0))

    def _waits(self, op: Operator) -> bool:
        """Return whether an op reads what an op without a stage computes, of its own phase."""
        phase = self.phase[op.uid]
        return phase is Phase.BACKWARD and any(
            n.partition("@GRAD")[1] and n not in self.made for n in reads_of(op) if n != EMPTY_NAME
        )

    def _given(self, op: Operator) -> int | None:
        """Return the stage that an op itself names."""
        for origin in (op.forward_uid, op.recomputes):
            if origin is not None and origin in self.stage:
                return self.stage[origin]
        device = device_of(op)
        if op.type in MARKERS or device.endswith(":all"):
            return ALL
        number = _number(device)
        return None if number is None or op.backward_id is not None else self._numbers[number]

    def _put(self, op: Operator, stage: int) -> None:
        self.stage[op.uid] = stage
        for name in writes_of(op):
            if name == EMPTY_NAME or self.is_kept(name):
                continue
            if self.made.setdefault(name, stage) != stage:
                raise ValueError(
                    f"{name!r} is written on stages {self.made[name]} and {stage} of the pipeline: "
                    "let the layers of one device_guard write it."
                )

    # -- what is kept -------------------------------------------------------------------
    def _place_parameters(self) -> None:
        used: dict[str, set[int]] = {}
        written: set[str] = set()
        for op in self.of(Phase.FORWARD):
            written.update(writes_of(op))
            for name in {*reads_of(op), *writes_of(op)}:
                if self.is_kept(name):
                    used.setdefault(name, set()).add(self.stage[op.uid])
        for name, stages in used.items():
            is_shared = len(stages) > 1
            if is_shared and (name in written or isinstance(self._block.vars[name], Parameter)):
                first, second = sorted(stages)[:2]
                raise ValueError(
                    f"{name!r} is used on stages {first} and {second} of the pipeline, but one "
                    "worker has it: give each stage its own, or build the layers that share it "
                    "under one device_guard."
                )
            self.home[name] = ALL if is_shared else stages.pop()
        for param in self._block.program.all_parameters():
            self.home.setdefault(param.name, 0)

    def _check_order(self) -> None:
        for op in self.of(Phase.FORWARD):
            for name in reads_of(op):
                source, stage = self.made.get(name, ALL), self.stage[op.uid]
                if ALL not in (source, stage) and source > stage:
                    raise ValueError(
                        f"op {op.type!r} on stage {stage} of the pipeline reads {name!r}, which "
                        f"stage {source} computes: let layers follow each other from device to "
                        "device (device_guard), so that stages only need what earlier ones compute."
                    )

    # -- updates ------------------------------------------------------------------------
    def _place_updates(self, parameter_of: dict[str, str]) -> None:
        where: dict[str, int] = {n: self.home[p] for n, p in parameter_of.items()}
        ops = self.of(Phase.UPDATE)
        for op in ops:
            for param in op.input("Param"):
                for name in (*reads_of(op), *writes_of(op)):
                    if name not in op.input("LearningRate") and self.is_kept(name):
                        stage = self.home[param]
                        shared = where.get(name, stage) != stage
                        where[name] = ALL if shared else stage
        for op in ops:
            stages = {where.get(n, self.home.get(n, ALL)) for n in reads_of(op)} - {ALL}
            self._check_value(op, parameter_of)
            if len(stages) > 1 and op.type != "sum":
                raise ValueError(
                    f"op {op.type!r} of the update looks at gradients of all stages of the "
                    "pipeline, but a worker has those of its own: clip by the optimizer's "
                    "grad_clip=GradientClipByGlobalNorm(...), by value or by the norm of each."
                )
            stage = self.stage[op.uid] = stages.pop() if len(stages) == 1 else ALL
            for name in writes_of(op):
                where.setdefault(name, stage)
        self.where = where
        """The stages of the variables of updates."""
        for name, stage in where.items():
            if self.is_kept(name):
                self.home.setdefault(name, stage)

    def _check_value(self, op: Operator, gradients: dict[str, str]) -> None:
        for name in reads_of(op):
            if name in self.made and name not in gradients and not op.op_role & OpRole.LRSched:
                raise ValueError(
                    f"op {op.type!r} of the update reads {name!r}, which every micro-batch of the "
                    "pipeline computes anew: leave out what checks or changes it."
                )


def _phase(op: Operator, is_late: bool) -> Phase:
    if is_late or op.op_role & OpRole.LRSched:
        return Phase.UPDATE
    return Phase.BACKWARD if op.op_role & OpRole.Backward else Phase.FORWARD


def spans_stages(op: Operator, where: dict[str, int]) -> Sequence[int]:
    """Return the stages of what an op of the update reads."""
    return sorted({where.get(name, ALL) for name in op.input_arg_names} - {ALL})
