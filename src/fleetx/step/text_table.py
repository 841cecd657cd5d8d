"""Tables as text, for terminals and logs.

They are as wide as the narrowest common terminal, whatever this process writes to: what a worker
prints goes to a log first and is read on another terminal, now or later.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

WIDTH = 80
"""Columns of the widest line."""


def draw(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> str:
    """Return a table; cells that are too long are folded, numbers (columns `right`) are not."""
    # Only who looks at a table waits for the library that draws it.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), box=box.SQUARE)
    for heading in headings:
        is_number = heading in right
        table.add_column(
            heading,
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    buffer = io.StringIO()
    Console(file=buffer, width=WIDTH, color_system=None).print(table)
    return buffer.getvalue()


def size(count: float) -> str:
    """Return a number of bytes as people read it, in steps of 1000."""
    for unit in ("B", "kB", "MB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
