"""Admission rules of sparse tables for scripts; the names are Paddle's."""

from __future__ import annotations

from typing import Any

from fleetx.ps.tables.table_spec import EntrySpec


class EntryAttr:
    """An admission rule for new ids."""

    def to_attr(self) -> str:
        """Return the rule as the attribute of an op has it."""
        raise NotImplementedError("EntryAttr is a base class: use CountFilterEntry.")

    def _to_attr(self) -> str:  # Paddle's name
        return self.to_attr()

    def spec(self) -> EntrySpec:
        """Return the rule as part of a table's specification."""
        raise NotImplementedError("EntryAttr is a base class: use CountFilterEntry.")


class ProbabilityEntry(EntryAttr):
    """Admission of an unknown id with this probability, between 0 and 1, at every push."""

    def __init__(self, probability: float) -> None:
        if not isinstance(probability, float) or not 0.0 < probability < 1.0:
            raise ValueError(f"probability must be a float in (0,1), not {probability!r}.")
        self._probability = probability

    def to_attr(self) -> str:
        """Return the rule as the attribute of an op has it."""
        return f"probability_entry:{self._probability}"

    def spec(self) -> EntrySpec:
        """Return the rule as part of a table's specification."""
        return EntrySpec(kind="probability", value=self._probability)


class CountFilterEntry(EntryAttr):
    """Admission of an id after it has occurred this many times."""

    def __init__(self, count_filter: int) -> None:
        whole = isinstance(count_filter, int) and not isinstance(count_filter, bool)
        if not whole or count_filter < 0:
            raise ValueError(
                f"count_filter must be a valid integer greater than 0, not {count_filter!r}."
            )
        self._count_filter = count_filter

    def to_attr(self) -> str:
        """Return the rule as the attribute of an op has it."""
        return f"count_filter_entry:{self._count_filter}"

    def spec(self) -> EntrySpec:
        """Return the rule as part of a table's specification."""
        return EntrySpec(kind="count", value=self._count_filter)


def entry_spec(entry: Any) -> EntrySpec | None:
    """Return the specification of a rule in any of its forms."""
    if entry is None or isinstance(entry, EntrySpec):
        return entry
    if isinstance(entry, EntryAttr):
        return entry.spec()
    raise ValueError(
        f"entry must be CountFilterEntry or ProbabilityEntry, not {type(entry).__name__}."
    )
