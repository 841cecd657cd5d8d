"""What makes an evaluation impossible, as opposed to a difference that it finds.

Both are ValueErrors with one sentence for the user; the command prints it and ends with status 2.
"""

from __future__ import annotations


class EvaluationError(ValueError):
    """The samples, the model and the settings do not fit together."""


class EndpointError(EvaluationError):
    """The endpoint did not answer, or not in a way that could be read."""
