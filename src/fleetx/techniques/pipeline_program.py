"""A program cut into the stages of a pipeline: what is left of it on one worker.

The worker keeps the ops, parameters and optimizer state of its stage. What other stages need of it
is sent (`send_v2`), what it needs of them received (`recv_v2`): values in the forward pass, their
gradients in the backward pass. Gradients of micro-batches are added up (`@GRAD@MERGED`), and the
updates use the sums, once per run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from fleetx.comm import world
from fleetx.comm.layout import Group
from fleetx.comm.point_to_point import Peers
from fleetx.static.graph.dtypes import VarType, to_torch
from fleetx.static.graph.op_names import reads_of, writes_of
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.run.pipeline_stage import MERGED, PipelineStage
from fleetx.step.program_step import ProgramParameterSync, WrittenUpdate
from fleetx.techniques.pipeline_checks import feed_comparison
from fleetx.techniques.pipeline_cut import ALL, Phase, StageMap, device_of, spans_stages

_STAGES_RING, _COPIES_RING = 101, 102
"""Communicators between the stages of a copy, and between the copies of a stage."""


@dataclass(frozen=True)
class _Message:
    name: str
    source: int
    target: int
    after: int  # uid of the op that computes it


class CutProgram(ProgramParameterSync):
    """Leaves a worker's program the ops of its stage."""

    divides_state = divides_parameters = True

    def __init__(
        self,
        stages: Group,
        back: Group,
        copies: Group,
        *,
        micro_batches: int,
        micro_batch_size: int | None,
        mode: str,
    ) -> None:
        """`stages` are the workers of this pipeline, and `back` a twin for gradients; `copies` are
        those of this stage."""
        self._stages, self._copies = stages, copies
        self._settings: dict[str, Any] = {
            "micro_batches": micro_batches,
            "micro_batch_size": micro_batch_size,
            "mode": mode,
            "peers": Peers(stages, back),
        }
        self.state_copies = 0
        """Tensors of the size of a parameter that the optimizer keeps for it."""
        self.whole_bytes = self.own_bytes = 0
        """Bytes of the trained parameters of all stages, and of this one."""
        self.bytes_sent = 0
        """Bytes that this stage sends to others per run, if the size of a micro-batch is set."""

    def write(self, written: WrittenUpdate) -> None:
        """Cut the programs."""
        main = written.main
        if written.block is not main.global_block():
            raise ValueError(
                "the strategy switches on pipeline, whose accumulate_steps are added up to one "
                "update, but the updates of the program run in some runs only (gradient_merge, "
                "GradientMergeOptimizer): leave that out, and set a larger accumulate_steps."
            )
        sequences = [v.name for v in main.list_vars() if v.lod_level]
        if sequences:
            raise ValueError(
                f"{sequences[0]!r} has sequences of different lengths (lod_level), which FleetX "
                "does not divide into the micro-batches of a pipeline: pad them."
            )
        cut = StageMap(main, written.start, written.pairs)
        if cut.count != self._stages.size:
            raise ValueError(
                f"the layers of the program are on {cut.count} device(s) (device_guard), but the "
                f"pipeline has {self._stages.size} workers: build the layers under "
                f"device_guard('gpu:0') to device_guard('gpu:{self._stages.size - 1}'), or set "
                "hybrid_configs['pp_degree'] to the number of devices."
            )
        idle = set(range(cut.count)) - {cut.stage[op.uid] for op in cut.of(Phase.BACKWARD)}
        if idle:
            raise ValueError(
                f"stage {min(idle)} of the pipeline trains nothing, and no gradient flows through "
                "it: build its layers under the device_guard of another stage."
            )
        self.whole_bytes = _trained_bytes(main)
        _StageWriter(written, cut, self._stages, self._copies, self._settings).write()
        self.own_bytes = _trained_bytes(main)
        self.state_copies = _state_copies(main)
        size = self._settings["micro_batch_size"]
        if size is not None:
            self.bytes_sent = _sent_bytes(main, size) * self._settings["micro_batches"]


class _StageWriter:
    """Writes the programs of one stage."""

    def __init__(
        self,
        written: WrittenUpdate,
        cut: StageMap,
        stages: Group,
        copies: Group,
        settings: Mapping[str, Any],
    ) -> None:
        self._main, self._startup = written.main, written.startup
        self._block = self._main.global_block()
        self._cut, self._stages, self._copies = cut, stages, copies
        self._settings = settings
        self._stage = stages.rank
        self._before = set(self._block.vars)
        grads = [(p.name, g.name) for p, g in written.pairs if g is not None]
        self._grads = {g: p for p, g in grads if cut.home[p] == self._stage}
        named = {cut.stage[op.uid]: device_of(op) for op in reversed(cut.of(Phase.FORWARD))}
        self._device = named.get(self._stage, "")

    def write(self) -> None:
        """Replace the ops of the main program, and drop what belongs to other stages."""
        cut = self._cut
        self._scale_loss()
        messages = self._messages(Phase.FORWARD) + self._messages(Phase.BACKWARD)
        forward = self._with_messages(Phase.FORWARD, messages)
        backward = self._with_messages(Phase.BACKWARD, messages)
        begin, sums = self._accumulation()
        updates = self._updates()
        self._block.ops = [*begin, *forward, *backward, *sums, *updates]
        for op in self._block.ops:
            if not device_of(op):
                shared = cut.stage.get(op.uid) == ALL
                kind = self._device.partition(":")[0]
                op.attrs["op_device"] = f"{kind}:all" if shared else self._device
        elsewhere = self._drop_variables()
        self._cut_startup(elsewhere)
        self._main.binding.pipeline = PipelineStage(
            index=self._stage,
            stages=self._stages.size,
            elsewhere=frozenset(elsewhere),
            compare=feed_comparison(self._main, self._stages),
            **self._settings,
        )
        self._main.bump_version()

    def _make(self, type: str, inputs: Any, outputs: Any, role: int, **attrs: Any) -> Operator:
        """Return a new op of this stage, not yet in its place."""
        attrs |= {"op_role": role, "op_device": self._device}
        op = self._block.append_op(type, inputs, outputs, attrs)
        self._block.ops.pop()
        return op

    def _is_own(self, op: Operator) -> bool:
        return self._cut.stage[op.uid] in (self._stage, ALL)

    def _scale_loss(self) -> None:
        """Let the loss of a micro-batch count by its share of the batch of all copies."""
        share = 1.0 / (self._settings["micro_batches"] * self._copies.size)
        for op in self._cut.of(Phase.BACKWARD):
            if op.type == "fill_constant" and op.op_role == OpRole.Backward | OpRole.Loss:
                op.attrs["value"] = float(op.attrs["value"]) * share

    # -- messages -----------------------------------------------------------------------
    def _messages(self, phase: Phase) -> list[_Message]:
        """Return what a phase sends from stage to stage, in the order in which it is computed."""
        cut = self._cut
        last = {n: op.uid for op in cut.of(phase) for n in writes_of(op)}
        targets: dict[str, set[int]] = {}
        for op in (*cut.of(Phase.FORWARD), *cut.of(Phase.BACKWARD)):
            for name in reads_of(op):
                if name in last and ALL not in (cut.made.get(name, ALL), cut.stage[op.uid]):
                    targets.setdefault(name, set()).add(cut.stage[op.uid])
        return [
            _Message(name, cut.made[name], target, op.uid)
            for op in cut.of(phase)
            for name in dict.fromkeys(writes_of(op))
            if name in cut.made and last[name] == op.uid
            for target in sorted(targets.get(name, set()) - {cut.made[name]})
        ]

    def _with_messages(self, phase: Phase, messages: list[_Message]) -> list[Operator]:
        """Return the ops of a phase on this stage, beginning with what it receives."""
        cut, role = self._cut, OpRole.Forward if phase is Phase.FORWARD else OpRole.Backward
        uids = {op.uid for op in cut.of(phase)}
        own = [m for m in messages if m.after in uids and self._stage in (m.source, m.target)]
        arriving = [m for m in own if m.target == self._stage]
        received = [self._receive(m, role) for m in arriving]
        remote = {m.name for m in arriving}
        totals, found = [], []
        for op in cut.of(phase):
            if not self._is_own(op):
                continue
            if phase is Phase.BACKWARD and op.type == "sum" and remote.issuperset(op.input("X")):
                # The gradient of a value that only other stages use is known before the pass.
                op.backward_id = None
                totals.append(op)
                continue
            found.append(op)
            found += [self._send(m, role) for m in own if m.after == op.uid and m not in arriving]
        return [*received, *totals, *found]

    def _send(self, message: _Message, role: int) -> Operator:
        attrs = {"peer": message.target, "dynamic_shape": self._is_open(message.name)}
        return self._make("send_v2", {"X": [message.name]}, {}, role, **attrs)

    def _receive(self, message: _Message, role: int) -> Operator:
        var = self._block.var(message.name)
        if var.type != VarType.LOD_TENSOR:
            raise ValueError(
                f"{message.name!r} goes from stage {message.source} to stage {message.target} of "
                "the pipeline, but only tensors can: build the layers that make and use it under "
                "one device_guard."
            )
        attrs = {
            "peer": message.source,
            "dynamic_shape": self._is_open(message.name),
            "out_shape": list(var.shape),
            "dtype": int(var.dtype),
        }
        return self._make("recv_v2", {}, {"Out": [message.name]}, role, **attrs)

    def _is_open(self, name: str) -> bool:
        return any(size < 0 for size in self._block.var(name).shape)

    # -- gradients and updates ------------------------------------------------------------
    def _accumulation(self) -> tuple[list[Operator], list[Operator]]:
        """Return the ops that set the sums of gradients to zero, and those that add to them."""
        begin, sums = [], []
        for grad, param in self._grads.items():
            like = self._block.var(param)
            settings = {"shape": like.shape, "dtype": like.dtype}
            total = self._block.create_var(name=param + MERGED, **settings).name
            zero = {"shape": list(like.shape), "dtype": like.dtype, "value": 0.0}
            begin.append(self._make("fill_constant", {}, {"Out": [total]}, OpRole.LRSched, **zero))
            inputs = {"X": [grad], "Y": [total]}
            sums.append(
                self._make("elementwise_add", inputs, {"Out": [total]}, OpRole.Backward, axis=-1)
            )
        return begin, sums

    def _updates(self) -> list[Operator]:
        """Return the updates of this stage, which use the sums; those of copies are added up
        first."""
        found = []
        if not self._copies.is_alone:
            world.set_ring(_COPIES_RING, self._copies.process_group)
            found += [self._sum_over(p + MERGED, _COPIES_RING) for p in self._grads.values()]
        own = {*self._grads, *(n for n, s in self._cut.where.items() if s in (self._stage, ALL))}
        for op in self._cut.of(Phase.UPDATE):
            if not self._is_own(op):
                continue
            spans = len(spans_stages(op, self._cut.where)) > 1
            if not op.op_role & (OpRole.LRSched | OpRole.Optimize):
                op.attrs["op_role"] = op.op_role | OpRole.Optimize
            if spans:
                found += self._partial_sum(op, own)
            else:
                found.append(op)
        for op in found:
            for names in (*op.inputs.values(), *op.outputs.values()):
                names[:] = [self._grads[n] + MERGED if n in self._grads else n for n in names]
        return found

    def _partial_sum(self, op: Operator, own: set[str]) -> list[Operator]:
        """Return the ops that add up what stages have of a sum, such as squares of norms."""
        world.set_ring(_STAGES_RING, self._stages.process_group)
        name = op.output("Out")[0]
        op.inputs["X"] = [n for n in op.input("X") if n in own]
        if not op.inputs["X"]:
            var = self._block.var(name)
            zero = {"shape": list(var.shape), "dtype": var.dtype, "value": 0.0}
            op = self._make("fill_constant", {}, {"Out": [name]}, OpRole.Optimize, **zero)
        return [op, self._sum_over(name, _STAGES_RING)]

    def _sum_over(self, name: str, ring: int) -> Operator:
        role = OpRole.Optimize | OpRole.Backward  # it may travel with others
        return self._make("c_allreduce_sum", {"X": [name]}, {"Out": [name]}, role, ring_id=ring)

    # -- variables ----------------------------------------------------------------------
    def _drop_variables(self) -> set[str]:
        """Drop the variables of other stages; return their names."""
        used = {n for op in self._block.ops for n in (*reads_of(op), *writes_of(op))}
        lost = set()
        for name, var in list(self._block.vars.items()):
            home = self._cut.home.get(name, ALL if var.persistable else None)
            keeps = home in (self._stage, ALL) or var.is_data or var.type == VarType.READER
            if name not in used and not keeps:
                del self._block.vars[name]
                lost.add(name)
        return lost

    def _cut_startup(self, elsewhere: set[str]) -> None:
        """Drop what only other stages keep; make the copies of this stage equal."""
        block = self._startup.global_block()
        lost = {name for name in block.vars if name in elsewhere}
        block.ops = [op for op in block.ops if not lost.issuperset(op.output_arg_names or [""])]
        for name in lost:
            del block.vars[name]
        names = [] if self._copies.is_alone else [n for n, v in block.vars.items() if v.persistable]
        for name in names:
            block.append_op(
                type="c_broadcast",
                inputs={"X": [name]},
                outputs={"Out": [name]},
                attrs={"ring_id": _COPIES_RING, "root": self._copies.ranks[0]},
            )
        self._startup.bump_version()


def _bytes(var: Any, samples: int = 1) -> int:
    """Return the size of a variable; open dimensions are as many samples."""
    count = prod(samples if size < 0 else size for size in var.shape)
    return int(count * to_torch(var.dtype).itemsize)


def _trained_bytes(program: Program) -> int:
    return sum(_bytes(p) for p in program.all_parameters() if p.trainable)


def _sent_bytes(program: Program, samples: int) -> int:
    """Return what a micro-batch of so many samples sends, with the shapes in front."""
    block = program.global_block()
    sent = [block.var(op.input("X")[0]) for op in block.ops if op.type == "send_v2"]
    headers = sum(8 * len(var.shape) for var in sent if -1 in var.shape)
    return sum(_bytes(var, samples) for var in sent) + headers


def _state_copies(program: Program) -> int:
    """Return how many variables like a parameter its update keeps."""
    block = program.global_block()
    counts = [0]
    for op in block.ops:
        if op.op_role & OpRole.Optimize and op.input("Param"):
            size = prod(block.var(op.input("Param")[0]).shape)
            slots = [s for s in op.input_names if s not in ("Param", "Grad", "LearningRate")]
            names = [n for slot in slots for n in op.input(slot)]
            counts.append(sum(prod(block.var(n).shape) == size > 1 for n in names))
    return max(counts)
