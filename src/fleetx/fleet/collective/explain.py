"""`fleet.explain()`: the composed step as a table, with what it costs.

A row per stage and technique: its settings, the bytes one worker sends in an average step, and the
memory it adds or saves. Bytes are computed from the algorithms of the collectives (a ring for
all-reduces), without network headers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from torch import Tensor

from fleetx.comm import world
from fleetx.comm.divided_tensors import shape_of_layer
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.program import Program
from fleetx.static.run.place import usual_device
from fleetx.step.stages import Stage
from fleetx.step.technique import Job, Row, Sizes, Technique, ring_bytes
from fleetx.step.text_table import draw, size


@dataclass(frozen=True)
class Explanation:
    """The rows of a composed step; its text is the table."""

    rows: tuple[Row, ...]
    workers: int
    shares_memory: bool = False
    """Whether the workers are connected and exchange tensors through shared memory."""

    @property
    def bytes_sent(self) -> float:
        """Bytes that one worker sends in an average step."""
        return sum(row.bytes_sent for row in self.rows)

    def __str__(self) -> str:
        rows, last = [], None
        for row in self.rows:
            stage = "" if row.stage == last else str(row.stage)
            last = row.stage
            rows.append((stage, row.technique, row.settings, travels(row), memory(row.memory)))
        headings = ("stage", "technique", "settings", "sent/step", "memory")
        title = f"the training step, {self.workers} worker(s)"
        title += " that share memory" if self.shares_memory else ""
        return draw(title, headings, rows, right=headings[3:])

    @property
    def is_plain(self) -> bool:
        """No technique is on."""
        return all(row.technique in _DEFAULTS for row in self.rows)

    def short(self) -> str:
        """Return the step in one line."""
        rows = [row for row in self.rows if row.technique not in _DEFAULTS]
        names = [row.short or row.technique for row in rows]
        techniques = " + ".join(dict.fromkeys(names)) or "all-reduce"
        activations = any(row.sends_activations for row in self.rows)
        return (
            f"fleet: {techniques}; {self.workers} worker(s), each sends "
            f"{_amount(self.bytes_sent, activations)} per step (fleet.explain() shows more)"
        )


_DEFAULTS = ("full", "keep activations", "all-reduce", "none", "the script's optimizer")


def travels(row: Row) -> str:
    """Return the bytes that a row sends, or receives from servers, as text."""
    if row.bytes_received and not row.bytes_sent:
        return f"gets {size(row.bytes_received)}"
    if not row.bytes_sent and not row.sends_activations:
        return "-"
    return _amount(row.bytes_sent, row.sends_activations)


def _amount(count: float, activations: bool) -> str:
    """Return bytes as text, with activations of unknown size if there are any."""
    if not activations:
        return size(count)
    return f"{size(count)} and activations" if count else "activations"


def memory(change: float | None) -> str:
    """Return the memory that a technique adds or saves, as text."""
    if change is None:
        return "by activations"
    return f"{'+' if change > 0 else ''}{size(change)}" if change else "-"


def explain(job: Job, techniques: Sequence[Technique], sizes: Sizes, optimizer: str) -> Explanation:
    """Return the rows of the step composed of these techniques."""
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
    return Explanation(tuple(shared), job.workers, world.shares_memory())


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
