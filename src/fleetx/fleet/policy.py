"""The rules by which a session follows a strategy, as far as front ends differ.

`Policy` implements FleetX's rules: every technique that is switched on is applied or rejected, and
has the name of its switch. A strategy class has a policy (`DistributedStrategy.policy`), so that
another front end can define its own rules without a change of the session.
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
        """Reject what a job with parameter servers does not support: a search by measuring."""
        if getattr(strategy, "auto", False):
            raise ValueError(
                "strategy.auto measures steps of workers that average gradients among themselves, "
                "which a job with parameter servers does not: switch it off and set "
                "strategy.a_sync."
            )

    def unsupported(self, setting: str, reason: str) -> None:
        """Handle a setting of the optimizer that a technique does not support: raise an error."""
        refuse(setting, reason)

    def names(self, techniques: Sequence[str]) -> list[str]:
        """Return the names of the applied techniques, given their switches."""
        return list(techniques)

    def graph_names(self, techniques: Sequence[str]) -> list[str]:
        """Return the names of passes that are applied to a whole program: none."""
        return []


FLEETX = Policy()
"""The default policy."""
