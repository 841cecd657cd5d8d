"""Connections with limits: the size of a request's headers, and the time until they are complete.

uvicorn limits neither with its fast parser, so that clients that send headers slowly or without end
would hold connections and memory.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fleetx.serving.serve_settings import ServeSettings


def limited_protocol(settings: ServeSettings) -> type[asyncio.Protocol]:
    """Return the class of connections with the limits of these settings."""

    class Limited(HttpToolsProtocol):
        """A connection; between two requests uvicorn's own time limit applies."""

        _timer: asyncio.TimerHandle | None = None
        _in_headers = True
        _header_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._in_headers and not self.transport.is_closing():
                self._header_bytes += len(data)
                if self._header_bytes > settings.max_header:
                    self._refuse(431, b"the headers are too long.")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if not self._in_headers:
                self._expect_headers()

        def on_url(self, url: bytes) -> None:
            super().on_url(url)
            if len(self.url) > settings.max_header:
                self._refuse(414, b"the path is too long.")

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value)
            if len(name) + len(value) > settings.max_header:
                self._refuse(431, b"the headers are too long.")

        def on_headers_complete(self) -> None:
            self._in_headers = False
            self._cancel()
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > settings.max_header:
                self._refuse(431, b"the headers are too long.")
            if not self.transport.is_closing():
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if not self.transport.is_closing():
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.transport.is_closing():
                super().on_message_complete()

        def _expect_headers(self) -> None:
            self._in_headers, self._header_bytes = True, 0
            self._cancel()
            self._timer = self.loop.call_later(settings.header_seconds, self._too_late)

        def _too_late(self) -> None:
            if self._in_headers and not self.transport.is_closing():
                if self._header_bytes:
                    self._refuse(408, b"the headers did not arrive in time.")
                else:
                    self.transport.close()

        def _refuse(self, status: int, text: bytes) -> None:
            if self.transport.is_closing():
                return
            self._cancel()
            self.transport.write(
                b"HTTP/1.1 %d \r\ncontent-type: text/plain\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%s" % (status, len(text), text)
            )
            self.transport.close()

        def _cancel(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Limited
