"""Admission rules of sparse tables for scripts; the names are Paddle's."""

from __future__ import annotations

from typing import Any, ClassVar

from fleetx.ps.tables.row_rules import EntrySpec


class EntryAttr:
    """An admission rule for new ids; a subclass has its name in ops and its specification."""

    _name: ClassVar[str] = ""
    _spec: EntrySpec | None = None

    def to_attr(self) -> str:
        """Return the rule as the attribute of an op has it."""
        return f"{self._name}:{self.spec().value}"

    def _to_attr(self) -> str:  # Paddle's name
        return self.to_attr()

    def spec(self) -> EntrySpec:
        """Return the rule as part of a table's specification."""
        if self._spec is None:
            raise NotImplementedError("EntryAttr is a base class: use CountFilterEntry.")
        return self._spec


class ProbabilityEntry(EntryAttr):
    """Admission of an unknown id with this probability, between 0 and 1, at every push."""

    _name = "probability_entry"

    def __init__(self, probability: float) -> None:
        if not isinstance(probability, float) or not 0.0 < probability < 1.0:
            raise ValueError(f"probability must be a float in (0,1), not {probability!r}.")
        self._spec = EntrySpec(kind="probability", value=probability)


class CountFilterEntry(EntryAttr):
    """Admission of an id after it has occurred this many times."""

    _name = "count_filter_entry"

    def __init__(self, count_filter: int) -> None:
        whole = isinstance(count_filter, int) and not isinstance(count_filter, bool)
        if not whole or count_filter < 0:
            raise ValueError(
                f"count_filter must be a valid integer greater than 0, not {count_filter!r}."
            )
        self._spec = EntrySpec(kind="count", value=count_filter)


def entry_spec(entry: Any) -> EntrySpec | None:
    """Return the specification of a rule in any of its forms."""
    if entry is None or isinstance(entry, EntrySpec):
        return entry
    if isinstance(entry, EntryAttr):
        return entry.spec()
    raise ValueError(
        f"entry must be CountFilterEntry or ProbabilityEntry, not {type(entry).__name__}."
    )
