"""`fleet.explain()`: the composed step as tables, with what it costs.

A row per stage and technique: its settings, the bytes one worker sends in an average step, and the
memory it adds or saves. Then what the worker sends by dimension of the job and link, and what it
keeps. Bytes are computed from the algorithms of the collectives (a ring for all-reduces), without
network headers; those of activations from the shapes that one step had (`step/activations.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from torch import Tensor

from fleetx.comm import world
from fleetx.comm.divided_tensors import shape_of_layer
from fleetx.fleet.collective.held import Held
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.program import Program
from fleetx.static.run.place import usual_device
from fleetx.step.stages import Stage
from fleetx.step.technique import Job, Row, Sizes, Technique, ring_bytes
from fleetx.step.text_table import draw, size


@dataclass(frozen=True, kw_only=True)
class Message:
    """What one worker sends in an average step along some dimensions of the job."""

    axes: tuple[str, ...]
    ranks: tuple[int, ...]
    """The workers that send it to each other."""
    machines: int
    """On how many machines they are."""
    what: str
    bytes_sent: float | None
    """None if it is not known yet."""


@dataclass(frozen=True)
class Explanation:
    """The rows of a composed step; its text is the table."""

    rows: tuple[Row, ...]
    workers: int
    shares_memory: bool = False
    """Whether the workers are connected and exchange tensors through shared memory."""
    messages: tuple[Message, ...] = ()
    held: Held | None = None
    """None for a program."""

    @property
    def bytes_sent(self) -> float:
        """Bytes that one worker sends in an average step, as far as they are known."""
        return sum(row.bytes_sent + (row.activations or 0.0) for row in self.rows)

    def __str__(self) -> str:
        later = [each.bytes_sent for each in self.messages]
        later += [] if self.held is None else [self.held.state, self.held.activations]
        note = f"{_LATER}: known after the next training step\n" if None in later else ""
        return f"{self._step()}{self._sent()}{self._kept()}{note}"

    def _step(self) -> str:
        rows, last = [], None
        for row in self.rows:
            stage = "" if row.stage == last else str(row.stage)
            last = row.stage
            rows.append((stage, row.technique, row.settings, travels(row), memory(row.memory)))
        headings = ("stage", "technique", "settings", "sent/step", "memory")
        title = f"the training step, {self.workers} worker(s)"
        title += " that share memory" if self.shares_memory else ""
        return draw(title, headings, rows, right=headings[3:])

    def _sent(self) -> str:
        if not self.messages:
            return ""
        rows = [
            (
                " x ".join(each.axes),
                _ranks(each.ranks),
                "one machine" if each.machines == 1 else f"{each.machines} machines",
                each.what,
                _size(each.bytes_sent),
            )
            for each in self.messages
        ]
        headings = ("dimension", "workers", "within", "what", "sent/step")
        return draw("what this worker sends", headings, rows, right=headings[4:])

    def _kept(self) -> str:
        held = self.held
        if held is None:
            return ""
        rows = [
            ("parameters", size(held.parameters)),
            ("gradients", size(held.gradients)),
            ("optimizer state", _size(held.state)),
            *([("techniques", size(held.techniques))] if held.techniques else []),
            ("activations", _size(held.activations)),
            ("total", size(held.total)),
        ]
        return draw("what this worker keeps", ("what", "bytes"), rows, right=("bytes",))

    @property
    def is_plain(self) -> bool:
        """No technique is on."""
        return all(row.technique in _DEFAULTS for row in self.rows)

    def short(self) -> str:
        """Return the step in one line."""
        rows = [row for row in self.rows if row.technique not in _DEFAULTS]
        names = [row.short or row.technique for row in rows]
        techniques = " + ".join(dict.fromkeys(names)) or "all-reduce"
        unknown = any(row.activations is None for row in self.rows)
        return (
            f"fleet: {techniques}; {self.workers} worker(s), each sends "
            f"{_amount(self.bytes_sent, unknown=unknown)} per step (fleet.explain() shows more)"
        )


_LATER = "?"
"""Stands for a number that is not known yet."""
_DEFAULTS = ("full", "keep activations", "all-reduce", "none", "the script's optimizer")


def travels(row: Row) -> str:
    """Return the bytes that a row sends, or receives from servers, as text."""
    if row.bytes_received and not row.bytes_sent:
        return f"gets {size(row.bytes_received)}"
    sent = row.bytes_sent + (row.activations or 0.0)
    if not sent and row.activations is not None:
        return "-"
    return _amount(sent, unknown=row.activations is None)


def _amount(count: float, *, unknown: bool) -> str:
    """Return bytes as text, with activations of unknown size if there are any."""
    if not unknown:
        return size(count)
    return f"{size(count)} and activations" if count else "activations"


def _size(count: float | None) -> str:
    return _LATER if count is None else size(count)


def _ranks(ranks: Sequence[int]) -> str:
    """Return the ranks of workers, of many the first ones."""
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks[:4])) + (", ..." if len(ranks) > 4 else "")


def memory(change: float | None) -> str:
    """Return the memory that a technique adds or saves, as text."""
    if change is None:
        return "by activations"
    return f"{'+' if change > 0 else ''}{size(change)}" if change else "-"


def explain(job: Job, techniques: Sequence[Technique], sizes: Sizes, optimizer: str) -> Explanation:
    """Return the step composed of these techniques, and what a worker sends in it."""
    replaced = {stage for t in techniques for stage in t.replaces - t.relocates}
    replaced |= {row.stage for t in techniques if t.divides for row in t.rows(sizes)}
    rows = [row for row in _plain(job, sizes, optimizer) if row.stage not in replaced]
    rows += [row for technique in techniques for row in technique.rows(sizes)]
    share = 1.0
    for technique in techniques:
        share *= technique.share_of_bytes()
    order = list(Stage)
    rows.sort(key=lambda row: order.index(row.stage))
    shared = [
        replace(row, bytes_sent=row.bytes_sent * share, bytes_received=row.bytes_received * share)
        for row in rows
    ]
    return Explanation(tuple(shared), job.workers, world.shares_memory(), _messages(job, shared))


_WHAT = {
    Stage.MEMORY: "activations",
    Stage.GRAD_SYNC: "gradients",
    Stage.PARAM_SYNC: "parameters",
}


def _messages(job: Job, rows: Sequence[Row]) -> tuple[Message, ...]:
    """Return what a worker sends, by dimensions; to servers there is but one link."""
    if job.servers is not None:
        return ()
    found: dict[tuple[tuple[str, ...], str], float | None] = {}
    for row in rows:
        key = row.axes, _WHAT.get(row.stage, row.technique)
        sent = None if row.activations is None else row.bytes_sent + row.activations
        if sent is None or sent:
            before = found.get(key, 0.0)
            found[key] = None if before is None or sent is None else before + sent
    return tuple(_message(job, axes, what, sent) for (axes, what), sent in found.items())


def _message(job: Job, axes: Sequence[str], what: str, sent: float | None) -> Message:
    axes = [axis for axis in axes if getattr(job.layout.degrees, axis) > 1]
    ranks = next(g for g in job.layout.degrees.groups(axes) if job.rank in g)
    return Message(
        axes=tuple(axes),
        ranks=tuple(ranks),
        machines=len({rank // job.per_machine for rank in ranks}),
        what=what,
        bytes_sent=sent,
    )


def _plain(job: Job, sizes: Sizes, optimizer: str) -> list[Row]:
    """Return the rows of a step without techniques."""
    settings = f"buckets of {job.bucket_mb:g} MB"
    if job.all_reduce.group_size:
        settings += f", in groups of {job.all_reduce.group_size}"
    if job.all_reduce.communicators > 1:
        settings += f", {job.all_reduce.communicators} communicators"
    exchange = Row(
        stage=Stage.GRAD_SYNC,
        technique="all-reduce",
        settings=settings,
        bytes_sent=ring_bytes(sizes.parameter_bytes, job.copies),
    )
    alone = Row(stage=Stage.GRAD_SYNC, technique="none", settings="one worker")
    return [
        Row(stage=Stage.PRECISION, technique="full"),
        Row(stage=Stage.MEMORY, technique="keep activations"),
        exchange if job.workers > 1 else alone,
        Row(stage=Stage.UPDATE, technique="the script's optimizer", settings=optimizer),
        Row(stage=Stage.PARAM_SYNC, technique="none"),
    ]


def module_sizes(parameters: Iterable[Tensor], buffers: Iterable[Tensor]) -> Sizes:
    """Return the sizes of a PyTorch model."""
    trained = [p for p in parameters if p.requires_grad]
    return Sizes(
        shapes=tuple(shape_of_layer(p) for p in trained),
        element_bytes=trained[0].element_size() if trained else 4,
        device=trained[0].device.type if trained else "cpu",
        buffer_elements=sum(b.numel() for b in buffers if b.is_floating_point()),
    )


def program_sizes(program: Program) -> Sizes:
    """Return the sizes of a program."""
    parameters = program.all_parameters()
    trained = [p for p in parameters if p.trainable]
    rest = [p for p in parameters if not p.trainable]
    wide = trained and trained[0].dtype == VarType.FP64
    return Sizes(
        shapes=tuple(tuple(p.shape) for p in trained),
        element_bytes=8 if wide else 4,
        device=usual_device(),
        buffer_elements=sum(prod(p.shape) for p in rest),
    )


def announce(explanation: Explanation, rank: int) -> None:
    """Print the step in one line on rank 0, unless it is plain and on one worker."""
    is_plain = explanation.workers == 1 and explanation.is_plain
    if rank == 0 and not is_plain:
        print(explanation.short(), file=sys.stderr, flush=True)
