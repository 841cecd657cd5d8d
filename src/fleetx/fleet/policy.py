"""The rules by which a session follows a strategy, where front ends differ.

`Policy` has FleetX's own: every technique that is switched on is applied or refused, and has the
name of its switch. A strategy class brings its policy along (`DistributedStrategy.policy`), so that
another front end has its own rules without the session knowing them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.step.technique import refuse


class Policy:
    """FleetX's own rules; a subclass overrides those that differ."""

    def select(self, strategy: Any, optimizer: Any, workers: int) -> Any:
        """Return the strategy that is followed: the given one, or a copy with techniques off."""
        return strategy

    def lets_auto_act(self, strategy: Any) -> bool:
        """Return whether a strategy with `auto` on may be replaced by a better one."""
        return True

    def with_server_mode(self, strategy: Any, optimizer: Any, program: Any) -> Any:
        """Return the strategy of a program with parameter servers, with the mode decided."""
        return strategy

    def check_server_job(self, strategy: Any) -> None:
        """Refuse what a job with parameter servers cannot follow: a search by measuring."""
        if getattr(strategy, "auto", False):
            raise ValueError(
                "strategy.auto measures steps of workers that average gradients among themselves, "
                "which a job with parameter servers does not: switch it off and set "
                "strategy.a_sync."
            )

    def unsupported(self, setting: str, reason: str) -> None:
        """Take note of a setting of the optimizer that a technique cannot follow: an error."""
        refuse(setting, reason)

    def names(self, techniques: Sequence[str]) -> list[str]:
        """Return what the applied techniques are called, given their switches."""
        return list(techniques)

    def graph_names(self, techniques: Sequence[str]) -> list[str]:
        """Return what else is applied to a program as a whole: nothing that has a name."""
        return []


FLEETX = Policy()
"""The policy of strategies that bring none along."""
