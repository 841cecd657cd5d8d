"""Run a script as `python script.py` does, with its stack readable from outside.

Started as a file, not as a module, unless `--hang_timeout` is 0: python run_script.py STACKS
SIGNAL [-m] script args. On the signal, faulthandler writes the Python stack of every thread to the
file STACKS, even while the main thread waits inside C code. Uses only the standard library, and
leaves no trace in the script's `sys.argv`, `sys.path`, `__main__` or tracebacks.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import runpy
import sys
import traceback
import types
from types import TracebackType
from typing import TextIO

_STACKS: list[TextIO] = []  # faulthandler keeps the descriptor, not the file object


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught exception without the frames that led into the script."""
    while trace is not None and _is_own(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)
    if not _STACKS:
        return
    # The disk of the log may be full, and then nothing was printed.
    with contextlib.suppress(OSError):
        text = "".join(traceback.format_exception(kind, error, trace))
        _STACKS[0].write(f"\nUncaught exception:\n{text}")
        _STACKS[0].flush()


def _is_own(file: str) -> bool:
    """Return whether a frame of this file leads into the script."""
    return file == "<frozen runpy>" or os.path.dirname(file) == os.path.dirname(__file__)


def run(command: list[str]) -> None:
    """Run a worker's command (python -u [run_script.py STACKS SIGNAL] ...)."""
    rest = command[2:]
    if rest[0] == __file__:
        _trace(rest[1], rest[2])
        rest = rest[3:]
    else:
        sys.excepthook = _show
    _run(rest)


def _trace(stacks: str, signum: str) -> None:
    """Write stacks on the signal, and an uncaught exception."""
    _STACKS.append(open(stacks, "w"))  # noqa: SIM115 - stays open for the life of the process
    faulthandler.register(int(signum), file=_STACKS[0], all_threads=True)
    sys.excepthook = _show


def _run(rest: list[str]) -> None:
    if rest[0] == "-m":
        sys.argv = rest[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = rest
    script = rest[0]
    if os.path.isdir(script) or script.endswith((".zip", ".pyz")):
        sys.path.pop(0)
        runpy.run_path(script, run_name="__main__")
        return
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    file = os.path.abspath(script)  # as in Python's own __file__ and tracebacks
    module = types.ModuleType("__main__")
    module.__file__ = file
    module.__dict__["__builtins__"] = __builtins__
    # Kept after the script ends: exit handlers and pickles look up its names there.
    sys.modules["__main__"] = module
    with open(file, "rb") as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    exec(code, module.__dict__)


if __name__ == "__main__":
    _trace(sys.argv[1], sys.argv[2])
    _run(sys.argv[3:])
