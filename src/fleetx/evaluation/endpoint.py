"""A live HTTP endpoint: sends samples and receives vectors over persistent connections.

Every thread has its own connection. A request has a total time limit; lost connections and the
statuses that mean "later" are retried a limited number of times, anything else raises an error
that names the address and the samples.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np

from fleetx.evaluation.adapters import Answer, AnswerError, find_adapter
from fleetx.evaluation.evaluation_error import EndpointError, EvaluationError

Arrays = dict[str, np.ndarray]

# Too many requests, and the statuses of gateways while a server restarts.
_LATER = (429, 502, 503, 504)
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class EndpointSettings:
    """The address of an endpoint and the settings of its requests."""

    url: str
    adapter: str = "raw"
    timeout: float = 30.0
    """The time limit of a request in seconds, from connecting to the last byte."""
    retries: int = 3
    request_rows: int = 64
    """The maximum number of samples per request."""
    connections: int = 2
    """The number of concurrent requests in each process."""
    headers: Mapping[str, str] = field(default_factory=dict)
    largest_answer: int = 1 << 30

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EvaluationError(
                f"--against {self.url!r} is not an address such as http://host:8000."
            )


class _Retry(Exception):
    """The signal that a request may be retried; `after` is the endpoint's Retry-After."""

    def __init__(self, problem: str, after: float | None = None) -> None:
        super().__init__(problem)
        self.after = after


class Endpoint:
    """A client of a live endpoint; use it as a context manager."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self._adapter = find_adapter(settings.adapter)
        parts = urlsplit(settings.url)
        path = parts.path if parts.path not in ("", "/") else self._adapter.path
        self._target = path + (f"?{parts.query}" if parts.query else "")
        self.url = f"{parts.scheme}://{parts.netloc}{self._target}"
        self._parts = parts
        self._local = threading.local()
        self._open: list[http.client.HTTPConnection] = []
        self._pool = ThreadPoolExecutor(settings.connections, thread_name_prefix="endpoint")

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for connection in self._open:
            connection.close()

    def submit(
        self, inputs: Arrays, ids: Sequence[str], sources: Sequence[str] | None = None
    ) -> list[Future[Answer]]:
        """Send these samples; return one future response per request, in the order of samples.

        `sources` are their files, for adapters that send those; their ids if None.
        """
        rows = self.settings.request_rows
        sources = ids if sources is None else sources
        return [
            self._pool.submit(
                self._ask,
                {name: array[at : at + rows] for name, array in inputs.items()},
                ids[at : at + rows],
                sources[at : at + rows],
            )
            for at in range(0, len(ids), rows)
        ]

    def predict(self, inputs: Arrays, ids: Sequence[str]) -> list[Answer]:
        """Send these samples and wait; return one response per request, in the order of samples."""
        return collected(self.submit(inputs, ids))

    def _ask(self, inputs: Arrays, ids: Sequence[str], sources: Sequence[str]) -> Answer:
        body, headers = self._adapter.encode(inputs, sources)
        headers = {**headers, **self.settings.headers}
        which = f"sample {ids[0]!r}" if len(ids) == 1 else f"samples {ids[0]!r} to {ids[-1]!r}"
        for attempt in range(self.settings.retries + 1):
            try:
                answer, got = self._send(body, headers, which)
                return self._adapter.decode(answer, got)
            except AnswerError as error:
                raise EndpointError(
                    f"the answer of {self.url} to {which} cannot be read: {error}"
                ) from error
            except _Retry as problem:
                if attempt == self.settings.retries:
                    tries = "1 attempt" if attempt == 0 else f"{attempt + 1} attempts"
                    raise EndpointError(
                        f"{self.url} did not answer {which} in {tries}: {problem}."
                    ) from problem
                pause = 0.1 * 2**attempt if problem.after is None else problem.after
                time.sleep(min(pause, _LONGEST_PAUSE))
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self, body: bytes, headers: Mapping[str, str], which: str
    ) -> tuple[bytes, dict[str, str]]:
        """Send one request; return the body and the headers (lower case) of the response."""
        deadline = time.monotonic() + self.settings.timeout
        try:
            response, answer = self._exchange(body, headers, deadline)
        except TimeoutError as error:
            self._forget()
            raise _Retry(f"no complete response within {self.settings.timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            self._forget()
            reason = str(error) or type(error).__name__
            raise _Retry(f"the connection failed: {reason}") from error
        got = {name.lower(): value for name, value in response.getheaders()}
        if response.status == 200:
            return answer, got
        said = answer[:300].decode("utf-8", "replace").strip()
        if response.status in _LATER:
            raise _Retry(f"status {response.status}: {said}", _seconds(got.get("retry-after")))
        if 300 <= response.status < 400:
            said = f"it has moved to {got.get('location')!r}; use that address"
        raise EndpointError(f"{self.url} rejected {which} with status {response.status}: {said}")

    def _exchange(
        self, body: bytes, headers: Mapping[str, str], deadline: float
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connection(deadline)
        fresh = connection.sock is None
        try:
            connection.request("POST", self._target, body, dict(headers))
            response = connection.getresponse()
        except (ConnectionError, http.client.BadStatusLine):
            # The endpoint may have closed an idle connection just before the request arrived.
            if fresh:
                raise
            self._forget()
            connection = self._connection(deadline)
            connection.request("POST", self._target, body, dict(headers))
            response = connection.getresponse()
        parts: list[bytes] = []
        size = 0
        while part := response.read1(1 << 20):
            parts.append(part)
            size += len(part)
            if size > self.settings.largest_answer:
                self._forget()
                raise EndpointError(
                    f"{self.url} answered with more than {self.settings.largest_answer} bytes."
                )
            self._limit(connection, deadline)
        return response, b"".join(parts)

    def _connection(self, deadline: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            kind = (
                http.client.HTTPSConnection
                if self._parts.scheme == "https"
                else http.client.HTTPConnection
            )
            connection = kind(str(self._parts.hostname), self._parts.port)
            self._local.connection = connection
            self._open.append(connection)
        self._limit(connection, deadline)
        return connection

    @staticmethod
    def _limit(connection: http.client.HTTPConnection, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)

    def _forget(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._open.remove(connection)
            self._local.connection = None


def collected(futures: Sequence[Future[Answer]]) -> list[Answer]:
    """Wait for the responses; if one fails, cancel requests that were not yet sent."""
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None  # a date: use the default pause
