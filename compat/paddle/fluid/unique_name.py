"""Unique names."""

from typing import Any

from fleetx.static.unique_name import UniqueNameGenerator, generate, guard
from fleetx.static.unique_name import switch as _switch


def switch(
    new_generator: UniqueNameGenerator | None = None, new_para_name_checker: Any = None
) -> tuple[UniqueNameGenerator, Any]:
    """Install another generator (a fresh one by default) and return the previous one.

    The second of each pair belongs to eager mode and is returned unchanged.
    """
    return _switch(new_generator), None
