"""Where a served model finds the rows of its tables, and how many of them it caches.

Tables beside the model are mapped; the others are on the servers of a running job, which a service
may only read (`fleetx serve --servers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetx.checkpoint.file_errors import FormatError
from fleetx.ps.client.row_reader import RowReader, ServerPlaces
from fleetx.ps.wire.security import ReaderKeys
from fleetx.runtime.layout_folder import find_layout_folder
from fleetx.runtime.network import split_endpoint
from fleetx.runtime.server_support import read_keys

LIVE_CACHE = 64 << 20
"""The default cache of live rows in bytes."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a model looks up rows."""

    reader: RowReader | None = None
    """Reads the tables that are not beside the model; None if all are."""
    cache_bytes: int | None = None
    """The cache for the most recent rows of each table; None for 64 MB of live rows, and none of
    mapped ones, which the page cache holds."""
    max_age: float = 1.0
    """The seconds for which a live row may be cached."""


def live_rows(servers: str, keys: Path | None, *, insecure: bool, seconds: float) -> RowReader:
    """Return a reader of the rows on servers, by the options of `fleetx serve`."""
    if (keys is None) != insecure:
        raise FormatError(
            f"--servers {servers}",
            "needs --reader_keys with a file of `fleetx ps reader_keys`, or --server_insecure for "
            "servers that accept everyone, and not both.",
        )
    known = None if keys is None else _keys(keys)
    return RowReader(_places(servers), known, seconds=seconds)


def _keys(path: Path) -> ReaderKeys:
    try:
        return ReaderKeys.from_dict(read_keys(path, "--reader_keys"))
    except ValueError as error:
        raise FormatError(f"--reader_keys {path}", f"cannot be used: {error}") from error


def _places(servers: str) -> ServerPlaces:
    if Path(servers).is_dir():
        return ServerPlaces(folder=find_layout_folder(servers))
    endpoints = servers.split(",")
    for endpoint in endpoints:
        try:
            split_endpoint(endpoint)
        except ValueError as error:
            raise FormatError(
                f"--servers {servers}",
                "is neither the folder of a running job (its --log_dir or --server_state) nor "
                f"addresses such as 10.0.0.1:6170,10.0.0.2:6170: {error}.",
            ) from error
    return ServerPlaces(endpoints)
