"""Update formulas by name: the tensors they take and change, and their settings.

A rule is registered by decorating its function::

    @update_rule("sgd", takes="Param LearningRate Grad", changes={"ParamOut": "Param"})
    def sgd(param, rate, grad, *, regularization_coeff=0.0):
        ...

Tensors have the names of Paddle's slots, in saved tables too. `X?` may be None. The function writes
to the tensors it changes and returns them; settings are keyword arguments. Ops of programs and
tables of parameter servers are both built from these rules.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]
"""The tensors of one call, in the order of `takes`."""
Fused = Callable[..., list[Any]]


@dataclass(frozen=True)
class UpdateRule:
    """One update formula."""

    kind: str
    takes: str
    """The tensors, in the order of the function's arguments."""
    changes: Mapping[str, str]
    """The function's results by name, each with the argument that it is written to."""
    settings: Mapping[str, Any]
    """Settings with defaults; other keywords have theirs in the function's signature."""
    function: Callable[..., Any]
    fused: Fused | None = None
    """Several updates with the same settings in one call: fused(rows, **settings)."""
    random: bool = False
    """Whether the result is random."""
    takes_rows: bool = False
    """Whether `Grad` may be sparse (`row_gradients.py`); others get it dense."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the tensors."""
        return tuple(word.rstrip("?") for word in self.takes.split())

    @property
    def keywords(self) -> frozenset[str]:
        """The settings that the function reads."""
        parameters = inspect.signature(self.function).parameters.values()
        return frozenset(p.name for p in parameters if p.kind == p.KEYWORD_ONLY)

    @property
    def state(self) -> tuple[str, ...]:
        """The state that the rule keeps between updates, besides the parameter."""
        return tuple(name for name in self.changes.values() if name != "Param")


RULES: dict[str, UpdateRule] = {}


def update_rule(
    kind: str,
    *,
    takes: str,
    changes: Mapping[str, str],
    settings: Mapping[str, Any] | None = None,
    fused: Fused | None = None,
    random: bool = False,
    takes_rows: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the update `kind`; see the module's docstring."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if kind in RULES:
            raise ValueError(f"update {kind!r} is registered twice.")
        RULES[kind] = UpdateRule(
            kind, takes, changes, settings or {}, function, fused, random, takes_rows
        )
        return function

    return register


def fused_rule(
    kind: str,
    *,
    takes: str,
    changes: Mapping[str, str],
    settings: Mapping[str, Any] | None = None,
    takes_rows: bool = False,
) -> Callable[[Fused], Callable[..., Any]]:
    """Register a function of several rows, `f(rows, **settings)`, as the update `kind`.

    The decorated name is the update of a single row.
    """

    def register(fused: Fused) -> Callable[..., Any]:
        @functools.wraps(fused)
        def function(*row: Any, **given: Any) -> Any:
            return fused([row], **given)[0]

        return update_rule(
            kind,
            takes=takes,
            changes=changes,
            settings=settings,
            fused=fused,
            takes_rows=takes_rows,
        )(function)

    return register
