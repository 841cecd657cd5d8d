"""How long replies take, for the decision when a request must be lost (as TCP decides it, RFC 6298).

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
        """Take a reply into account. Of a request that was resent, it is unclear which is answered.

        Args:
            seconds: the time between a request that was sent once and its reply.
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
