"""Errors that make an evaluation impossible, as opposed to a difference that it finds.

Both are ValueErrors with one sentence for the user; the command prints it and exits with status 2.
"""

from __future__ import annotations


class EvaluationError(ValueError):
    """An error for samples, a model and settings that do not match."""


class EndpointError(EvaluationError):
    """An error for an endpoint that did not respond, or sent an unreadable response."""
