"""The progress line of worker 0: epoch, step, loss, samples per second, shares of time, time left.

On a terminal it is a single line, redrawn with rich from the training loop itself: no thread
competes with the training. In a log it is a plain line at intervals and one per epoch.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from fleetx.monitor.record import StepRecord
from fleetx.monitor.recorder import now

_ON_TERMINAL = 0.5  # seconds between redraws
_IN_LOG = 10.0
_SECONDS = 5.0  # averaging window of rates, in seconds
_SUMMED = ("steps", "seconds", "wait", "samples")
_SHORTEST_BAR, _LONGEST_BAR = 6, 24


def duration(seconds: float) -> str:
    """Format a time as h:mm:ss, or m:ss if it is short."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """Progress display of the training.

    Args:
        workers: the number of workers; samples per second are this worker's times this number.
        console: a rich Console; by default one on stderr, created at the first step.
        log_seconds: the interval between lines if there is no terminal.
    """

    def __init__(
        self, workers: int = 1, *, console: Any = None, log_seconds: float = _IN_LOG
    ) -> None:
        self._workers, self._console, self._log_seconds = workers, console, log_seconds
        self._live: Any = None
        self._drawn: float | None = None
        self._every: float | None = None
        # Sums over the last steps, and over those before.
        self._before, self._window = Counter[str](), Counter[str]()
        self._last: StepRecord | None = None
        self.is_open = True
        self.epochs: int | None = None
        """The total number of epochs."""
        self.steps_per_epoch: int | None = None
        self.done = 0
        """Steps so far."""
        self.done_in_epoch = 0
        self.loss: float | None = None
        self.values: dict[str, Any] = {}
        """Additional values that the script displays."""

    # -- steps ------------------------------------------------------------------------
    def take(self, record: StepRecord) -> None:
        """Count a step, and redraw if it is time."""
        if not self.is_open:
            return
        self.done += 1
        self.done_in_epoch += 1
        self._last = record
        if record.loss is not None:
            self.loss = record.loss
        if self.done == 2:  # the first step includes warm-up and would distort the rates
            self._before.clear()
            self._window.clear()
        for name in _SUMMED:
            self._window[name] += getattr(record, name)
        if self._window["seconds"] > _SECONDS:
            self._before, self._window = self._window, Counter()
        moment = now()
        if self._drawn is None or moment - self._drawn >= self._interval():
            self._drawn = moment
            self._draw()

    def _interval(self) -> float:
        if self._every is None:
            self._every = _ON_TERMINAL if self._on_terminal() else self._log_seconds
        return self._every

    def _on_terminal(self) -> bool:
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True)
        return bool(self._console.is_terminal)

    def epoch_began(self, steps: int | None) -> None:
        """Start an epoch of `steps` steps, if the number is known."""
        self.done_in_epoch = 0
        if steps is not None:
            self.steps_per_epoch = steps

    def epoch_ended(self) -> None:
        """End the epoch."""
        if self.done_in_epoch and self.is_open:
            self.steps_per_epoch = self.done_in_epoch
            self._draw()

    def note(self, values: dict[str, Any]) -> None:
        """Display additional values from now on."""
        self.values.update(values)
        if self._live is not None and self.is_open:
            self._draw()

    # -- the line ---------------------------------------------------------------------
    @property
    def total(self) -> int | None:
        """The total number of steps, if known."""
        if self.steps_per_epoch is None:
            return None
        return self.steps_per_epoch * (self.epochs or 1)

    def parts(self, *, short: bool = False) -> list[str]:
        """Return the parts of the line other than epoch and step."""
        found = [] if self.loss is None else [f"loss {float(self.loss):.4f}"]
        rate = self._before + self._window
        if rate["steps"]:
            seconds = max(rate["seconds"], 1e-9)
            if rate["samples"]:
                found.append(f"{rate['samples'] * self._workers / seconds:,.0f} samples/s")
            word = "comm" if short else "communication"
            found.append(f"{word} {rate['wait'] / seconds:.0%}")
            if self.total is not None:
                left = max(0, self.total - self.done) * seconds / rate["steps"]
                found.append(f"{duration(left)} left")
        return found + [f"{name} {_text(value)}" for name, value in self.values.items()]

    def _epoch(self) -> str:
        number = self._last.epoch if self._last is not None else 0
        if not number:
            return ""
        return f"epoch {number}/{self.epochs}" if self.epochs else f"epoch {number}"

    def _draw(self) -> None:
        if self._on_terminal():
            self._redraw()
            return
        total = f"/{self.total}" if self.total is not None else ""
        line = "  ".join(p for p in (self._epoch(), f"step {self.done}{total}", *self.parts()) if p)
        self._console.print(
            f"{time.strftime('%H:%M:%S')}  {line}", markup=False, highlight=False, soft_wrap=True
        )

    def _redraw(self) -> None:
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        total = "" if self.total is None else f"/{self.total}"
        words = [self._epoch(), f"step {self.done}{total}", *self.parts(short=True)]
        line = Text("  ".join(word for word in words if word), no_wrap=True, overflow="ellipsis")
        room = min(_LONGEST_BAR, self._console.width - line.cell_len - 3)
        if self.total and room >= _SHORTEST_BAR:
            filled = round(room * min(1.0, self.done / self.total))
            bar = Text.assemble(("━" * filled, "green"), ("━" * (room - filled), "dim"), "  ")
            line = bar + line
        self._live.update(line, refresh=True)

    def close(self) -> None:
        """Draw the final state and release the terminal."""
        if not self.is_open:
            return
        if self._live is not None:
            self._draw()
            self._live.stop()
        elif self.done and self.done_in_epoch != self.steps_per_epoch:
            self._draw()
        self.is_open = False


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
