"""`multiprocess_reader`: runs several readers in processes and merges their samples.

Each process sends its samples through a pipe. Processes are forked, because readers are usually
closures. An exception of a reader becomes the cause of a ReaderProcessError with the process's
traceback.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from fleetx.static.errors import ArgumentError, ReaderProcessError
from fleetx.static.readers.background_reading import BackgroundIterator
from fleetx.static.readers.batch import Reader

_SAMPLE, _END, _ERROR = "sample", "end", "error"


def multiprocess_reader(
    readers: list[Reader], use_pipe: bool = True, queue_size: int = 1000
) -> Reader:
    """Return a reader that runs each of `readers` in a process and merges their samples.

    With `use_pipe` readers take turns until they are exhausted; without it, samples come as they
    are ready, and each process prefetches up to `queue_size` of them.
    """
    if not isinstance(readers, list) or not readers:
        raise ArgumentError("multiprocess_reader() takes a list of at least one reader.")

    def merged() -> Iterator[Any]:
        workers = [_Worker(i, r, 0 if use_pipe else queue_size) for i, r in enumerate(readers)]
        try:
            yield from _in_turn(workers) if use_pipe else _as_ready(workers)
        finally:
            for worker in workers:
                worker.stop()

    return merged


class _Worker:
    """A process and the consumer's end of its pipe."""

    def __init__(self, index: int, reader: Reader, ahead: int) -> None:
        context: Any = multiprocessing.get_context("fork")
        self.index = index
        self.pipe, child_end = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(
            target=_serve, args=(reader, child_end, ahead), daemon=True
        )
        self.process.start()
        child_end.close()

    def receive(self) -> tuple[str, Any]:
        """Return the next message; re-raise an exception of the reader."""
        try:
            kind, value = pickle.loads(self.pipe.recv_bytes())
        except EOFError:
            self.process.join()
            raise ReaderProcessError(
                f"multiprocess_reader: the process of reader {self.index} ended with exit code "
                f"{self.process.exitcode} before its data ended."
            ) from None
        if kind == _ERROR:
            error, text = value
            raise ReaderProcessError(
                f"multiprocess_reader: reader {self.index} raised in its process:\n{text}"
            ) from error
        return kind, value

    def stop(self) -> None:
        """End the process and its pipe."""
        self.pipe.close()
        if self.process.is_alive():
            self.process.terminate()
        self.process.join()


def _in_turn(workers: list[_Worker]) -> Iterator[Any]:
    running = list(workers)
    while running:
        for worker in list(running):
            kind, sample = worker.receive()
            if kind == _END:
                running.remove(worker)
            else:
                yield sample


def _as_ready(workers: list[_Worker]) -> Iterator[Any]:
    running: dict[Any, _Worker] = {worker.pipe: worker for worker in workers}
    while running:
        for pipe in wait(list(running)):
            kind, sample = running[pipe].receive()
            if kind == _END:
                del running[pipe]
            else:
                yield sample


def _serve(reader: Reader, pipe: Connection, ahead: int) -> None:
    """Send every sample of the reader, then the end or its exception; runs in the process."""
    # A broken pipe means that the consumer has stopped.
    with contextlib.suppress(BrokenPipeError), pipe:
        try:
            samples = BackgroundIterator(reader, ahead) if ahead else reader()
            for sample in samples:
                if sample is None:
                    raise ValueError("a reader yielded None instead of a sample.")
                pipe.send_bytes(pickle.dumps((_SAMPLE, sample)))
            pipe.send_bytes(pickle.dumps((_END, None)))
        except BrokenPipeError:
            raise
        except Exception as error:
            pipe.send_bytes(_pack_error(error))


def _pack_error(error: Exception) -> bytes:
    text = "".join(traceback.format_exception(error))
    try:
        packed = pickle.dumps((_ERROR, (error, text)))
        pickle.loads(packed)
    except Exception:
        # An exception that cannot be pickled is reported by its text alone.
        packed = pickle.dumps((_ERROR, (None, text)))
    return packed
