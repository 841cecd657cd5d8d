"""Paddle's rules as the policy of a session whose strategy is from the package `paddle`.

Techniques that Paddle would drop are dropped with a warning, not rejected; applied ones have the
names of Paddle's classes; `auto` is active under Paddle's conditions.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

from fleetx.fleet.policy import Policy
from fleetx.paddle_rules import selection, server_auto

logger = logging.getLogger("fleetx.fleet")


class PaddlePolicy(Policy):
    """How Paddle 2.x selects, drops and names techniques."""

    def select(self, strategy: Any, optimizer: Any, workers: int) -> Any:
        """Return a copy of the strategy without techniques that Paddle drops; warn about them."""
        kept = selection.select(strategy, optimizer, workers, logger.warning)
        final = copy.deepcopy(strategy)
        for name in selection.OPTIMIZERS:
            if getattr(final, name) and name not in kept:
                setattr(final, name, False)
        return final

    def measures(self, strategy: Any, *, has_servers: bool) -> bool:
        """Return whether only `auto` was set; with servers it only selects their mode."""
        return not has_servers and bool(strategy.is_strict_auto())

    def with_server_mode(self, strategy: Any, optimizer: Any, program: Any) -> Any:
        """Return the strategy with the mode that `auto` selects, if it is on."""
        server_auto.check_geo(strategy, optimizer)
        if not strategy.is_strict_auto():
            return strategy
        return server_auto.with_mode(strategy, optimizer, program)

    def unsupported(self, setting: str, reason: str) -> None:
        """Warn that a technique ignores a setting of the optimizer, and continue."""
        logger.warning("%s; %s does not act.", reason, setting)

    def names(self, techniques: Sequence[str]) -> list[str]:
        """Return Paddle's classes of the applied techniques, outermost first."""
        return selection.class_names(techniques)

    def graph_names(self, techniques: Sequence[str]) -> list[str]:
        """Return Paddle's class for graph execution, if it applies."""
        return [selection.GRAPH] if selection.keeps_graph(techniques) else []


PADDLE = PaddlePolicy()
