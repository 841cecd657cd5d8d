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
# Other paths are counted together: clients could send any number of them.
_ROUTES = (PREDICT, "/v1/model", "/health", "/ready", "/metrics", "/docs", "/openapi.json")


class Front:
    """An ASGI application that wraps another."""

    def __init__(self, inner: Application, model: ServedModel, metrics: Metrics) -> None:
        self._inner, self._metrics = inner, metrics
        self._headers = [
            (b"x-model-version", model.version.encode()),
            (b"x-model-checksum", model.checksum.encode()),
        ]

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward a request and inspect its response."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        begin = time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
                self._count(scope["path"], message["status"], time.perf_counter() - begin)
            await send(message)

        await self._inner(scope, receive, send_with_headers)

    def _count(self, path: str, status: int, seconds: float) -> None:
        self._metrics.requests.add(path if path in _ROUTES else "other", str(status))
        if path == PREDICT:
            self._metrics.seconds.add(seconds)
            if status >= 400:
                self._metrics.errors.add(str(status))
