"""How Paddle's transpiler divides variables between parameter servers, by name and size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fleetx.exports import export_defined


class VarBlock:
    """A part of a variable: its name, the index of the part, and the number of elements."""

    def __init__(self, varname: str, offset: int, size: int) -> None:
        self.varname = varname
        self.offset = offset
        self.size = size

    def __str__(self) -> str:
        return f"{self.varname}:{self.offset}:{self.size}"


def same_or_split_var(p_name: str, var_name: str) -> bool:
    """Return whether a name is that of a variable or of a part of it."""
    return p_name == var_name or p_name.startswith(var_name + ".block")


def slice_variable(var_list: Iterable[Any], slice_count: int, min_block_size: int) -> list[str]:
    """Return the parts of variables, whole rows each, as "name:index:elements".

    Args:
        var_list: variables.
        slice_count: the maximum number of parts: the number of servers.
        min_block_size: the minimum number of elements of a part.
    """
    blocks = []
    for var in var_list:
        size = math.prod(var.shape)
        parts = min(slice_count, max(size // min_block_size, 1))
        row = math.prod(var.shape[1:])
        length = math.ceil(math.ceil(size / parts) / row) * row
        for index, start in enumerate(range(0, size, length)):
            blocks.append(str(VarBlock(var.name, index, min(length, size - start))))
    return blocks


def log(*args: Any) -> None:
    """Print nothing: the transpiler's result is in the programs that it returns."""


export_defined(globals())
