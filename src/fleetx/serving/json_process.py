"""Large JSON bodies, read and written by another process.

Python's JSON parser holds the interpreter lock from the first byte to the last: in any thread of
the server it would block health checks and all other requests. Small bodies take less time than
sending them to another process, and are converted in place.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from fleetx.serving.bodies import decode_json, decode_raw, encode_json, encode_raw
from fleetx.serving.request_error import RequestError
from fleetx.serving.tensor_spec import Arrays, TensorSpec

SMALL = 256 << 10
"""Bodies up to this size are converted in place."""
_PR_SET_PDEATHSIG = 1


def _end_with(server: int) -> None:
    """Make this process exit with the server, even if the server is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it has ended already
            os._exit(1)


def _decode(body: bytes, specs: Sequence[TensorSpec]) -> bytes | tuple[int, str]:
    try:
        return encode_raw(decode_json(body, specs))
    except RequestError as error:
        return error.status, error.problem
    except MemoryError:
        return 413, "the body needs more memory than is available."


def _encode(body: bytes, model: Mapping[str, str]) -> bytes:
    return encode_json(decode_raw(body), model)


class JsonProcess:
    """The process that converts large bodies, started for the first one."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def decode(self, body: bytearray, specs: Sequence[TensorSpec]) -> Arrays:
        """Return the arrays of a JSON body."""
        if len(body) <= SMALL:
            return decode_json(body, specs)
        found = await self._call(_decode, bytes(body), list(specs))
        if isinstance(found, tuple):
            raise RequestError(*found)
        return decode_raw(found)

    async def encode(self, arrays: Mapping[str, Any], model: Mapping[str, str]) -> bytes:
        """Return a response as JSON."""
        if sum(np.asarray(array).nbytes for array in arrays.values()) <= SMALL:
            return encode_json(arrays, model)
        found: bytes = await self._call(_encode, encode_raw(arrays), dict(model))
        return found

    async def _call(self, function: Any, *args: Any) -> Any:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), _end_with, (os.getpid(),)
            )
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)
        except BrokenProcessPool as error:
            self._pool = None
            raise RequestError(
                503, "the process that reads JSON has ended; try again.", retry_after=1
            ) from error

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
