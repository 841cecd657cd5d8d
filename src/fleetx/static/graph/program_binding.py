"""The run-time state of a program in this process, separate from its description.

A `Program` describes what is computed. `program.binding` holds the sources of its data, the hooks
around a run, the communicator or servers that it trains with, and the steps that executors have
lowered.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fleetx.static.run.pipeline_stage import PipelineStage
from fleetx.static.run.server_link import Servers

_Steps = weakref.WeakKeyDictionary[Any, dict[Any, Any]]


@dataclass
class ProgramBinding:
    """The run-time state of one program.

    The first group of fields belongs to the ops: copies of the program, and programs that take over
    its ops, inherit them. The second group belongs to one program object and is not inherited.
    """

    readers: list[Any] = field(default_factory=list)
    """Data sources that the executor reads: objects with `output_names` and `next_feed()`."""
    before_run: list[Callable[[Any], None]] = field(default_factory=list)
    """Hooks called with the scope before every run, e.g. of learning rate schedulers."""
    gradient_exchange: Any = None
    """The all-reduce of gradients, which overlaps with backward; None to run op by op."""
    servers: Servers | None = None
    """The connection to the parameter servers."""
    decision: Any = None
    """Decides whether a run counts (`run/decided_run.py`); None if every run does."""
    pipeline: PipelineStage | None = None
    """The pipeline stage of the program; None if it is not pipelined."""
    offloads_checkpoints: bool = False
    """Whether recomputation keeps its checkpoints in host memory."""

    runs_as: Callable[[Any], Any] | None = None
    """Function that returns the program to run in place of this one, or of a copy of it."""

    first_run: Callable[..., None] | None = None
    """Hook that the first run calls with executor, program, feed and scope; it may change ops."""
    measured: Callable[..., Any] | None = None
    """Hook of the monitor. An executor calls it with a function that prepares the program for a
    list of fetches, and with that list; it runs the result instead of the prepared program."""
    updated_by: Any = None
    """The optimizer that appended the updates."""
    compiled_as: Any = None
    """A CompiledProgram whose settings apply when the program is run directly."""
    steps: _Steps = field(default_factory=weakref.WeakKeyDictionary)
    """The steps that executors have lowered. They are stored here and not in the executor, because
    they refer to the program: both are freed together."""

    def for_copy(self) -> ProgramBinding:
        """Return the binding of a copy of the program."""
        copy = ProgramBinding()
        copy.take_over(self)
        return copy

    def take_over(self, other: ProgramBinding) -> None:
        """Inherit the fields that belong to the ops of another program."""
        self.readers = list(other.readers)
        self.before_run = list(other.before_run)
        self.gradient_exchange = other.gradient_exchange
        self.servers = other.servers
        self.decision = other.decision
        self.pipeline = other.pipeline
        self.offloads_checkpoints = other.offloads_checkpoints
        self.runs_as = other.runs_as
