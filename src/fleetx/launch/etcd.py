"""A client of etcd for keys bound to a lease, through etcd's JSON gateway (v3).

It implements only what an election needs: leases, creating a key once, and reading it. It needs no
library; requests have a time limit, and responses a size limit.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
from collections.abc import Sequence
from typing import Any

_LONGEST = 1 << 20


class EtcdError(Exception):
    """No member of the cluster sent a valid response."""


class Etcd:
    """An etcd cluster; any member that responds is used."""

    def __init__(self, endpoints: Sequence[tuple[str, str, int]], timeout: float = 3.0) -> None:
        """Take scheme, host and port of each member, and the seconds that a request may take."""
        self._endpoints = list(endpoints)
        self._timeout = timeout

    def grant(self, seconds: int) -> str:
        """Return a lease that expires after some seconds, unless it is renewed."""
        return str(_field(self._call("/v3/lease/grant", {"TTL": str(seconds)}), "ID", str))

    def keep_alive(self, lease: str) -> bool:
        """Renew a lease; return whether it still exists."""
        answer = self._call("/v3/lease/keepalive", {"ID": lease})
        result = _field(answer, "result", dict)
        # A lease that has ended has no time left, and the gateway leaves zeros out.
        return str(result.get("TTL", "0")) not in ("0", "-1")

    def revoke(self, lease: str) -> None:
        """Revoke a lease, and remove its keys."""
        self._call("/v3/lease/revoke", {"ID": lease})

    def create(self, key: str, value: bytes, lease: str) -> bool:
        """Create a key bound to a lease; return False if the key exists already."""
        name = _text(key.encode())
        request = {
            "compare": [
                {"key": name, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
            ],
            "success": [{"request_put": {"key": name, "value": _text(value), "lease": lease}}],
        }
        return bool(self._call("/v3/kv/txn", request).get("succeeded", False))

    def get(self, key: str) -> bytes | None:
        """Return the value of a key; None if it does not exist."""
        answer = self._call("/v3/kv/range", {"key": _text(key.encode())})
        entries = answer.get("kvs") or []
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise EtcdError("its answer has no list of keys")
        if not entries:
            return None
        try:
            return base64.b64decode(entries[0].get("value", ""), validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise EtcdError("its answer has a value that is not base64") from None

    def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        problems = []
        for endpoint in list(self._endpoints):
            try:
                return self._ask(endpoint, path, json.dumps(body))
            except (OSError, http.client.HTTPException, EtcdError) as error:
                problems.append(f"{endpoint[1]}:{endpoint[2]}: {error or type(error).__name__}")
                # Ask the next one first from now on.
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)
        raise EtcdError("; ".join(problems))

    def _ask(self, endpoint: tuple[str, str, int], path: str, body: str) -> dict[str, Any]:
        scheme, host, port = endpoint
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        connection = kind(host, port, timeout=self._timeout)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read(_LONGEST + 1)
        finally:
            connection.close()
        if len(text) > _LONGEST:
            raise EtcdError(f"its answer has more than {_LONGEST} bytes")
        if response.status != 200:
            raise EtcdError(f"status {response.status} for {path}: {text[:200]!r}")
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            raise EtcdError(f"its answer to {path} is not JSON") from None
        if not isinstance(answer, dict):
            raise EtcdError(f"its answer to {path} is not an object")
        return answer


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _field(answer: dict[str, Any], name: str, kind: type) -> Any:
    value = answer.get(name)
    if not isinstance(value, kind):
        raise EtcdError(f"its answer has no {name}")
    return value
