"""What is wrong with a request: a sentence for its sender, and the HTTP status to go with it."""

from __future__ import annotations


class RequestError(Exception):
    """A request that is not answered with outputs.

    Args:
        status: the HTTP status of the answer.
        problem: one sentence that names what was wrong.
        retry_after: after how many seconds the same request may succeed, where it may.
    """

    def __init__(self, status: int, problem: str, *, retry_after: int | None = None) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem
        self.retry_after = retry_after
