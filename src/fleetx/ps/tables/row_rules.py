"""Specifications of the rules by which a sparse table admits and evicts rows."""

from __future__ import annotations

from dataclasses import dataclass

from fleetx.ps.tables.spec_checks import is_number, require

ENTRIES = ("count", "probability")


@dataclass(frozen=True, kw_only=True)
class EntrySpec:
    """The admission rule of ids; until admitted, they read as zeros and are not trained.

    "count": the id's n-th look-up in training finds its row. "probability": every push of an id
    admits it with this probability.
    """

    kind: str
    value: float

    def __post_init__(self) -> None:
        require(
            self.kind in ENTRIES, f"entry {self.kind!r} is not known: use {', '.join(ENTRIES)}."
        )
        require(is_number(self.value), f"entry {self.kind!r} needs a number: {self.value!r}.")
        if self.kind == "count":
            require(
                self.value >= 0 and self.value == int(self.value),
                f"entry 'count' needs a whole number that is not negative, not {self.value!r}.",
            )
        else:
            require(
                0.0 < self.value < 1.0,
                f"entry 'probability' needs a number between 0 and 1, not {self.value!r}.",
            )


@dataclass(frozen=True, kw_only=True)
class EvictionSpec:
    """The eviction rule of rows; all conditions that are set apply.

    A row's score is the number of times its id was pushed; a search for expired rows multiplies
    all scores by `score_decay`. A table on servers is searched after `every` pushes. That of a
    single process can also be searched by the script, with `SparseTable.evict`.
    """

    max_unseen: int | None = None
    """A search drops rows that have not been pushed for longer than this.

    With `every`, the unit is a search: 0 keeps the rows that were pushed since the last one. For
    a script that calls `evict`, it is that of `SparseTable.clock`.
    """
    min_score: float | None = None
    """A search drops rows whose score is lower."""
    score_decay: float = 1.0
    max_bytes: int | None = None
    """The memory limit of the table; a push that exceeds it then drops the least used tenth."""
    every: int | None = None
    """The pushes to the table (on each server) between two searches for expired rows.

    Each of these searches then advances the table's clock by one.
    """

    def __post_init__(self) -> None:
        for name in ("max_unseen", "max_bytes", "every"):
            value = getattr(self, name)
            require(
                value is None or (isinstance(value, int) and not isinstance(value, bool)),
                f"{name} of an eviction must be a whole number, not {value!r}.",
            )
            require(value is None or value >= 0, f"{name} must not be negative: {value!r}.")
        require(
            self.min_score is None or is_number(self.min_score),
            f"min_score of an eviction must be a number, not {self.min_score!r}.",
        )
        require(
            is_number(self.score_decay) and 0.0 <= self.score_decay <= 1.0,
            f"score_decay of an eviction must be between 0 and 1, not {self.score_decay!r}.",
        )
        require(self.every != 0, "every of an eviction must be at least 1, not 0.")
        drops = self.max_unseen is not None or self.min_score is not None
        orders = self.score_decay != 1.0 and self.max_bytes is not None
        require(
            self.every is None or drops or orders,
            f"every={self.every!r} of an eviction searches for rows that nothing expires: set "
            "max_unseen or min_score, or leave out every.",
        )

    @property
    def search_rules(self) -> dict[str, float]:
        """The rules that only a search for expired rows applies, by field."""
        decay = None if self.score_decay == 1.0 else self.score_decay
        rules = (("max_unseen", self.max_unseen), ("min_score", self.min_score))
        found = dict((*rules, ("score_decay", decay)))
        return {name: value for name, value in found.items() if value is not None}
