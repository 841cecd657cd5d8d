"""The slots of a step: fixed, and each filled by one technique.

A stage in a slot that does not exist would never be called, and one that replaces the stage of
another technique would disable it; both are errors that name the slot.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

if TYPE_CHECKING:
    from fleetx.step.technique import Technique


class NoSuchSlot(AttributeError):
    """Code uses a slot that a step does not have."""

    def __init__(self, step: FixedSlots, slot: str) -> None:
        super().__init__(f"step.{slot}, which the step of a {step.trains} does not have")
        self.step, self.slot = step, slot


class FixedSlots:
    """Base of steps: only attributes set in `__init__` can be read and set."""

    trains: ClassVar[str]
    """What the step trains, "module" or "program"."""
    _is_complete = False

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __setattr__(self, name: str, value: Any) -> None:
            if self._is_complete and name not in vars(self):
                raise NoSuchSlot(self, name)
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> NoReturn:  # called only for what is not there
            raise NoSuchSlot(self, name)

    def _fix_slots(self) -> None:
        """Reject other slots from now on."""
        self._owners: dict[str, Technique[Any]] = {}
        self._is_complete = True

    def owner(self, slot: str) -> Technique[Any] | None:
        """Return the technique whose stage is in a slot; None if it has the default."""
        return self._owners.get(slot)

    def set_owner(self, slot: str, technique: Technique[Any]) -> None:
        """Record which technique fills a slot."""
        self._owners[slot] = technique

    def check(self, slot: str, stage: Any) -> str | None:
        """Return which stages a slot takes, as a clause, if it does not take this one."""

    def slots(self) -> list[str]:
        """Return the names of the slots."""
        return sorted(name for name in vars(self) if not name.startswith("_"))

    def advice(self, slot: str) -> str:
        """Return a hint for a slot that does not exist, as a clause."""
        similar = get_close_matches(slot, self.slots(), 1, cutoff=0.8)
        return f"did you mean {similar[0]}?" if similar else f"it has {', '.join(self.slots())}."
