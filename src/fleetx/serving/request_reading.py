"""Reading of a request: its key, its media types, and its body within the limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from fastapi import Request

from fleetx.serving.bodies import JSON, RAW, RAW_TYPES
from fleetx.serving.request_error import RequestError
from fleetx.serving.serve_settings import ServeSettings


class ClientGone(Exception):
    """The signal that the client disconnected before its request was complete."""


def check_key(request: Request, settings: ServeSettings) -> None:
    """Reject a request without a valid key, if keys are required."""
    key = request.headers.get("x-api-key")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if key is None and scheme.lower() == "bearer":
        key = token.strip()
    if not settings.allows(key):
        word = "has no" if key is None else "has a wrong"
        raise RequestError(
            401,
            f"the request {word} API key: send 'X-API-Key: ...' or 'Authorization: Bearer ...'.",
        )


def body_kinds(request: Request) -> tuple[str, str]:
    """Return the media types of the request's and the response's body: JSON or RAW each."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != JSON and given not in RAW_TYPES:
        raise RequestError(
            415, f"Content-Type is {given or 'missing'}; send {JSON} or {RAW} (safetensors)."
        )
    if "content-encoding" in request.headers:
        raise RequestError(415, "Content-Encoding is not supported; send the body uncompressed.")
    kind = JSON if given == JSON else RAW
    return kind, _answer_kind(request.headers.get("accept", "*/*"), kind)


def _answer_kind(accept: str, kind: str) -> str:
    """Return the first supported media type of an Accept header; by default that of the request."""
    for part in accept.lower().split(","):
        name = part.partition(";")[0].strip()
        if name in ("*/*", "application/*", ""):
            return kind
        if name == JSON:
            return JSON
        if name in RAW_TYPES:
            return RAW
    raise RequestError(406, f"Accept is {accept!r}; answers are {JSON} or {RAW} (safetensors).")


class BodyBudget:
    """The bytes of all bodies in progress, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    @contextlib.contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Provide a function that counts the bytes of a request's body until the end of the block.

        It raises an error if all bodies together are too long.
        """
        own = 0

        def count(size: int) -> None:
            nonlocal own
            if self.used + size > self._limit:
                raise RequestError(
                    503,
                    f"the bodies of all requests in progress would exceed {self._limit} bytes; try "
                    "again later.",
                    retry_after=1,
                )
            self.used += size
            own += size

        try:
            yield count
        finally:
            self.used -= own


async def read_body(
    request: Request, settings: ServeSettings, count: Callable[[int], None]
) -> bytearray:
    """Return the body; raise an error as soon as it is too long or takes too long.

    `count` is told how many bytes have arrived.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > settings.max_body:
        raise _too_long(settings)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                piece = message.get("body", b"")
                if len(body) + len(piece) > settings.max_body:
                    raise _too_long(settings)
                count(len(piece))
                body += piece
                if not message.get("more_body", False):
                    return body
    except TimeoutError as error:
        raise RequestError(
            408, f"the body did not arrive within {settings.body_seconds:g} seconds."
        ) from error


def _too_long(settings: ServeSettings) -> RequestError:
    return RequestError(413, f"the body is longer than the limit of {settings.max_body} bytes.")
