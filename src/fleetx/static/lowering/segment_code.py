"""The function of a recomputed segment: its arguments and results.

Its body uses the same local names as the step. Values read from a scope become arguments, and the
step stores its results there, so that a second call has no side effects.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.generated_code import (
    Code,
    Function,
    Line,
    code,
    held,
    listed,
    local,
    statement,
)


@dataclass
class SegmentCode:
    """A segment's function while it is written."""

    name: str
    lines: list[Line] = field(default_factory=list)
    stores: list[Line] = field(default_factory=list)  # lines for the step, after the call
    fixed: set[str] = field(default_factory=set)  # locals that are parameters, not activations
    changed: set[str] = field(default_factory=set)  # scope variables that are changed in place
    position: int = 0  # of the call in the step
    last_op: Operator | None = None  # represents the segment in messages
    _held: dict[str, Code] = field(default_factory=dict)  # argument -> value in the scope

    def argument(self, holder: str) -> Code:
        """Return the argument that holds the value of a scope variable."""
        name = holder.lower()
        self._held[name] = held(holder)
        return Code(name)

    def finish(self, used: set[str]) -> tuple[Function, Line]:
        """Return the function and its call, given the locals that the step reads later."""
        made: dict[str, None] = {}
        taken: dict[str, None] = {}
        for line in self.lines:
            taken.update(dict.fromkeys(name for name in line.reads if name not in made))
            made.update(dict.fromkeys(line.writes))
        activations = [name for name in taken if name not in self.fixed]
        rest = [name for name in taken if name in self.fixed]
        values = [local(name) for name in activations + rest] + list(self._held.values())
        changed = [i for i, value in enumerate(values) if self.changed.intersection(value.held)]
        kept = [local(name) for name in made if name in used]
        results = code("{},", listed(kept)) if kept else None
        function = Function(
            self.name,
            [*activations, *rest, *self._held],
            [*self.lines, statement(code("return ({})", results or ""))],
        )
        call = code(
            "run_segment({}, {}, ({}), {})",
            self.name,
            str(len(activations)),
            "".join(f"{i}, " for i in changed),
            listed(values),
        )
        assert self.last_op is not None
        return function, statement(call, (self.last_op,), to=results)
