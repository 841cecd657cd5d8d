"""Experimental optimizers of Paddle 2.x."""

from typing import Any

from fleetx.static.optimizer import (
    GradientMergeOptimizer,
    LarsMomentumOptimizer,
    RecomputeOptimizer,
)
from fleetx.static.optimizer import LookaheadOptimizer as LookAhead
from fleetx.static.optimizer import ModelAverage as _ModelAverage


class ModelAverage(_ModelAverage):
    """The mean of parameters over the last steps, with the arguments of Paddle 2.x."""

    def __init__(
        self,
        average_window_rate: float,
        parameters: Any = None,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        name: str | None = None,
    ) -> None:
        super().__init__(
            average_window_rate,
            min_average_window,
            max_average_window,
            name=name,
            parameters=parameters,
        )

    def minimize(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: every run of the program updates the averages."""

    def step(self) -> None:
        """Do nothing: every run of the program updates the averages."""
