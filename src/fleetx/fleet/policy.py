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
        """Return the effective strategy: the given one, or a copy with techniques switched off."""
        return strategy

    def measures(self, strategy: Any, *, has_servers: bool) -> bool:
        """Return whether `auto` measures candidates, if the strategy switches it on."""
        return True

    def with_server_mode(self, strategy: Any, optimizer: Any, program: Any) -> Any:
        """Return the strategy of a program with parameter servers, with the mode decided."""
        return strategy

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
