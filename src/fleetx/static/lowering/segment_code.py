"""The function of a segment that is computed again: which locals go in, which come out.

Its body is written with the same local names as the step's. What it reads from a scope becomes an
argument, what it stores there is stored by the step, so that a second call changes nothing.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from fleetx.static.operator import Operator

LOCAL = re.compile(r"\bv\d+\b")
_HELD = re.compile(r"\bH(\d+)\.value\b")
_STORED = re.compile(r"\s*(H\d+\.value = .*)")


def free_early(lines: list[str]) -> list[str]:
    """Insert `del` after the last line that mentions a local."""
    last: dict[str, int] = {}
    for i, line in enumerate(lines):
        for name in LOCAL.findall(line):
            last[name] = i
    ends: dict[int, list[str]] = {}
    for name, i in last.items():
        if i < len(lines) - 1 and not lines[i].endswith(":"):
            ends.setdefault(i, []).append(name)
    return [
        line + (f"; del {', '.join(ends[i])}" if i in ends else "") for i, line in enumerate(lines)
    ]


@dataclass
class SegmentCode:
    """A segment's function while it is written."""

    name: str
    lines: list[str]
    ops_of_line: dict[int, tuple[Operator, ...]]  # by number of the line, the `def` being line 1
    fixed: set[str]  # locals that are no activations: parameters and the like
    changed: set[str]  # scope variables (H...) whose values are changed in place
    stores: list[str] = field(default_factory=list)  # lines for the step, behind the call
    position: int = 0  # of the call in the step
    _held: dict[str, str] = field(default_factory=dict)  # argument -> value in the scope

    def take_out_scope(self) -> None:
        """Turn reads of the scope into arguments, and move stores behind the call."""
        body = []
        for line in self.lines:
            stored = _STORED.match(line)
            if stored:
                self.stores.append(stored[1])
                body.append("    pass")  # a line keeps its number
            else:
                body.append(_HELD.sub(self._argument, line))
        self.lines = body

    def _argument(self, found: re.Match[str]) -> str:
        name = f"h{found[1]}"
        self._held[name] = found[0]
        return name

    def finish(self, used: set[str]) -> str:
        """Write the end of the function, which returns those of its locals that are used later.

        Returns the call.
        """
        made: dict[str, None] = {}
        taken: dict[str, None] = {}
        for line in self.lines:
            names = [n for n in ast.walk(ast.parse(line.strip())) if isinstance(n, ast.Name)]
            for node in names:
                known = LOCAL.fullmatch(node.id)
                if known and isinstance(node.ctx, ast.Load) and node.id not in made:
                    taken[node.id] = None
            made.update(
                {n.id: None for n in names if isinstance(n.ctx, ast.Store) and LOCAL.match(n.id)}
            )
        results = "".join(f"{name}, " for name in made if name in used)
        self.lines.append(f"    return ({results})")
        activations = [n for n in taken if n not in self.fixed]
        rest = [n for n in taken if n in self.fixed] + list(self._held)
        self._arguments = activations + rest
        values = [self._held.get(n, n) for n in self._arguments]
        in_place = {f"{name}.value" for name in self.changed}
        changed = [i for i, value in enumerate(values) if value in in_place]
        positions = "".join(f"{i}, " for i in changed)
        call = f"run_segment({self.name}, {len(activations)}, ({positions}), {', '.join(values)})"
        return f"{results}= {call}" if results else call

    def source(self) -> list[str]:
        """Return the lines of the function."""
        return [f"def {self.name}({', '.join(self._arguments)}):", *free_early(self.lines), ""]
