"""Errors of requests: a sentence for the client, and the HTTP status."""

from __future__ import annotations


class RequestError(Exception):
    """An error for a request that cannot be answered with outputs.

    Args:
        status: the HTTP status of the response.
        problem: one sentence that describes the problem.
        retry_after: the seconds after which a retry may succeed, if any.
    """

    def __init__(self, status: int, problem: str, *, retry_after: int | None = None) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem
        self.retry_after = retry_after
