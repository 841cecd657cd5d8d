"""The techniques that a strategy can switch on: ours, a script's own, and those of other packages.

A package adds techniques by the entry-point group `fleetx.techniques`, a script by
`fleet.register(Mine)`. Both front ends and every strategy know them from then on.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

from fleetx.comm import world
from fleetx.static.ops.stage_ops import provide
from fleetx.step.program_step import ProgramStep
from fleetx.step.technique import Job, Order, Technique

GROUP = "fleetx.techniques"
"""The entry-point group."""

Kind = type[Technique[Any]]
_known: dict[str, Kind] = {}
_listeners: list[Callable[[Kind], None]] = []


def register(technique: Kind) -> Kind:
    """Register a technique; usable as a decorator. Registering the same class again is allowed.

    Raises TypeError for an incomplete technique, ValueError for a name that is taken.
    """
    _check(technique)
    found = _known.get(technique.name)
    if found is technique:
        return technique
    if found is not None:
        raise ValueError(
            f"there is already a technique {technique.name!r} ({found.__module__}."
            f"{found.__qualname__}): give {technique.__qualname__} another name."
        )
    _known[technique.name] = technique
    try:
        for listener in _listeners:
            listener(technique)
    except Exception:
        del _known[technique.name]
        raise
    return technique


def _check(technique: Any) -> None:
    if not (isinstance(technique, type) and issubclass(technique, Technique)):
        raise TypeError(f"register takes a subclass of Technique, not {technique!r}.")
    name = getattr(technique, "name", None)
    if not (isinstance(name, str) and name.isidentifier()):
        raise TypeError(
            f"{technique.__qualname__}.name is {name!r}: it is the switch on the strategy, so it "
            "must be an identifier."
        )
    if not isinstance(getattr(technique, "order", None), Order):
        raise TypeError(
            f"{technique.__qualname__}.order is not set: set when it changes the step, e.g. order "
            "= Order.EXCHANGE."
        )


def known() -> tuple[Kind, ...]:
    """Return all techniques in the order in which they change a step."""
    return tuple(sorted(_known.values(), key=lambda technique: technique.order))


def listen(listener: Callable[[Kind], None]) -> None:
    """Call `listener` with every technique: those known already, and each new one."""
    _listeners.append(listener)
    for technique in known():
        listener(technique)


def _provide_stages(technique: Kind) -> None:
    """Let ops of programs run the stages that a technique's `change` puts into a step."""
    if technique.change is not Technique.change:
        provide(technique.name, partial(_make_step, technique))


def _make_step(technique: Kind, settings: str) -> ProgramStep:
    config = SimpleNamespace(**{f"{technique.name}_configs": json.loads(settings)})
    step = ProgramStep(None)
    job = Job(strategy=config, workers=world.world_size(), rank=world.rank())
    technique(job).change(step)
    return step


listen(_provide_stages)


def load_entry_points() -> None:
    """Register the techniques of installed packages.

    Raises RuntimeError that names the package if one cannot be loaded.
    """
    for entry in entry_points(group=GROUP):
        try:
            register(entry.load())
        except Exception as error:
            package = "a package" if entry.dist is None else entry.dist.name
            raise RuntimeError(
                f"the technique {entry.name!r} of {package} ({entry.value}) cannot be loaded: "
                f"{error}"
            ) from error


def proto_numbers(technique: Kind) -> tuple[int, int]:
    """Return the numbers of a technique's switch and settings in the protobuf."""
    if technique.numbers is not None:
        return technique.numbers
    first = 100_000 + 2 * (zlib.crc32(technique.name.encode()) % 1_000_000)
    return first, first + 1
