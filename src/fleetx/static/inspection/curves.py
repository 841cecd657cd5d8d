"""Training curves, drawn with Matplotlib into a notebook or a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleetx.runtime import environment


@dataclass
class Curve:
    """The points of one curve."""

    step: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def append(self, step: float, value: float) -> None:
        """Add a point."""
        self.step.append(step)
        self.value.append(value)

    def reset(self) -> None:
        """Remove all points."""
        self.step, self.value = [], []


class Ploter:
    """Draws curves by title; with DISABLE_PLOT=True in the environment it only collects points."""

    def __init__(self, *args: str) -> None:
        self.curves = {title: Curve() for title in args}
        self._plt: Any = None
        if not environment.plotting_is_off():
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError(
                    "Ploter needs Matplotlib: pip install matplotlib, or set DISABLE_PLOT=True "
                    "to draw nothing."
                ) from error
            self._plt = plt

    def append(self, title: str, step: float, value: float) -> None:
        """Add a point to a curve."""
        if title not in self.curves:
            known = ", ".join(map(repr, self.curves))
            raise ValueError(f"Ploter has no curve {title!r}; its curves are {known}.")
        self.curves[title].append(step, value)

    def plot(self, path: str | None = None) -> None:
        """Draw all curves that have points, into a notebook or a file."""
        if self._plt is None:
            return
        drawn = {title: curve for title, curve in self.curves.items() if curve.step}
        for curve in drawn.values():
            self._plt.plot(curve.step, curve.value)
        self._plt.legend(list(drawn), loc="upper left")
        if path is None:
            from IPython import display  # type: ignore[import-not-found]

            display.clear_output(wait=True)
            display.display(self._plt.gcf())
        else:
            self._plt.savefig(path)
        self._plt.gcf().clear()

    def reset(self) -> None:
        """Remove the points of all curves."""
        for curve in self.curves.values():
            curve.reset()
