"""Generated code as records: the reads, the writes and the ops of every line.

The code generator builds expressions (`Code`) and lines (`Line`); analyses such as freeing locals
early or splitting a function in two work on these records. Text is rendered once, at the end, and
never parsed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetx.static.graph.operator import Operator


@dataclass(frozen=True)
class Code:
    """An expression or an assignment target: its text and the names in it."""

    text: str
    locals: tuple[str, ...] = ()
    held: tuple[str, ...] = ()  # scope variables, by their names among the function's globals


NONE = Code("None")


def local(name: str) -> Code:
    """Return the code of a local."""
    return Code(name, (name,))


def held(name: str) -> Code:
    """Return the code of a scope variable's value."""
    return Code(f"{name}.value", held=(name,))


def code(template: str, *parts: Code | str) -> Code:
    """Fill a template in the style of `str.format`; the result has the names of all its parts."""
    codes = [part for part in parts if isinstance(part, Code)]
    return Code(
        template.format(*(part.text if isinstance(part, Code) else part for part in parts)),
        tuple(name for each in codes for name in each.locals),
        tuple(name for each in codes for name in each.held),
    )


def listed(parts: Iterable[Code]) -> Code:
    """Join the items of a list of arguments or targets."""
    parts = list(parts)
    return code(", ".join(["{}"] * len(parts)), *parts)


@dataclass(frozen=True)
class Line:
    """One line of a generated function: `text` without indentation, its reads and writes."""

    text: str
    reads: tuple[str, ...] = ()  # locals
    writes: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()  # scope variables
    stores: tuple[str, ...] = ()
    ops: tuple[Operator, ...] = ()  # what it computes; the first stands for all in messages
    depth: int = 1
    opens_block: bool = False  # an `if`: the lines after it are deeper

    @property
    def mentions(self) -> tuple[str, ...]:
        """The locals of the line, from left to right."""
        return self.writes + self.reads


def statement(
    value: Code,
    ops: tuple[Operator, ...] = (),
    *,
    to: Code | None = None,
    depth: int = 1,
    opens_block: bool = False,
) -> Line:
    """Return the line that evaluates an expression and assigns it to `to`, if given."""
    target = to or Code("")
    return Line(
        f"{target.text} = {value.text}" if to else value.text,
        reads=value.locals,
        writes=target.locals,
        loads=value.held,
        stores=target.held,
        ops=ops,
        depth=depth,
        opens_block=opens_block,
    )


@dataclass
class Function:
    """A generated function."""

    name: str
    arguments: list[str]
    lines: list[Line]

    def render(self) -> list[str]:
        """Return its source: the `def`, then one line of text per line."""
        freed = _last_uses(self.lines)
        body = [
            f"{'    ' * line.depth}{line.text}"
            + (f"; del {', '.join(freed[i])}" if i in freed else "")
            for i, line in enumerate(self.lines)
        ]
        return [f"def {self.name}({', '.join(self.arguments)}):", *body]


def _last_uses(lines: list[Line]) -> dict[int, list[str]]:
    """Return the locals to delete after each line: those that it mentions last."""
    last = {name: i for i, line in enumerate(lines) for name in line.mentions}
    freed: dict[int, list[str]] = {}
    for name, i in last.items():
        if i < len(lines) - 1 and not lines[i].opens_block:
            freed.setdefault(i, []).append(name)
    return freed


def render(functions: Iterable[Function]) -> tuple[str, dict[int, tuple[Operator, ...]]]:
    """Return the source of a module with these functions, and the ops of its lines by number."""
    text: list[str] = []
    ops_of_line: dict[int, tuple[Operator, ...]] = {}
    for function in functions:
        for number, line in enumerate(function.lines, len(text) + 2):  # after the `def`
            if line.ops:
                ops_of_line[number] = line.ops
        text += [*function.render(), ""]
    return "\n".join([*text, ""]), ops_of_line
