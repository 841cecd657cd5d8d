"""Middleware for all responses: adds the model's version and checksum as headers, and counts them.

It wraps the whole application, so that responses for unknown paths and internal errors have these
headers too.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fleetx.serving.model import ServedModel
from fleetx.serving.server_metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

PREDICT = "/v1/predict"
# Other paths are counted together: clients could send arbitrarily many.
_ROUTES = (PREDICT, "/v1/model", "/health", "/ready", "/metrics", "/docs", "/openapi.json")

VERSION = b"x-model-version"


def version_headers(model: ServedModel) -> list[tuple[bytes, bytes]]:
    """Return the headers that identify the model."""
    return [(VERSION, model.version.encode()), (b"x-model-checksum", model.checksum.encode())]


class Front:
    """An ASGI application that wraps another."""

    def __init__(
        self, inner: Application, current: Callable[[], ServedModel], metrics: Metrics
    ) -> None:
        self._inner, self._current, self._metrics = inner, current, metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward a request and inspect its response."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        begin = time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if all(name != VERSION for name, _ in message["headers"]):  # a prediction has it
                    message["headers"] = [*message["headers"], *version_headers(self._current())]
                self._count(scope["path"], message["status"], time.perf_counter() - begin)
            await send(message)

        await self._inner(scope, receive, send_with_headers)

    def _count(self, path: str, status: int, seconds: float) -> None:
        self._metrics.requests.add(path if path in _ROUTES else "other", str(status))
        if path == PREDICT:
            self._metrics.seconds.add(seconds)
            if status >= 400:
                self._metrics.errors.add(str(status))
