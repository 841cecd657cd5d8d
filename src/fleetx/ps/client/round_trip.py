"""How long replies take, to decide when a request counts as lost (as TCP does: RFC 6298).

A fixed limit is too short for a busy job: once replies take longer than it, every request is sent
twice, which makes the servers busier still.
"""

from __future__ import annotations


class RoundTrip:
    """A running estimate of the time between a request and its reply, in seconds."""

    def __init__(self) -> None:
        self._mean: float | None = None
        self._deviation = 0.0

    def add(self, seconds: float) -> None:
        """Add the time between a request that was sent only once and its reply.

        A request that was resent does not count: it is unclear which of its copies was answered.
        """
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
            return
        self._deviation += (abs(seconds - self._mean) - self._deviation) / 4
        self._mean += (seconds - self._mean) / 8

    @property
    def unusual(self) -> float:
        """The time after which a reply is later than replies usually are; 0 before the first."""
        return 0.0 if self._mean is None else self._mean + 4 * self._deviation
