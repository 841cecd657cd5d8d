"""The two default programs that layers write into.

`main` holds the computation, `startup` the ops that initialise parameters. Layers append to the
programs selected by `program_guard`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fleetx.static.graph.program import Program

_main_program = Program()
_startup_program = Program()
_startup_program._is_start_up_program_ = True


def default_main_program() -> Program:
    """Return the program that layers append to."""
    return _main_program


def default_startup_program() -> Program:
    """Return the program that parameters' initializers are appended to."""
    return _startup_program


def switch_main_program(program: Program) -> Program:
    """Make another program the default main program; return the old one."""
    global _main_program
    old, _main_program = _main_program, program
    return old


def switch_startup_program(program: Program) -> Program:
    """Make another program the default startup program; return the old one."""
    global _startup_program
    old, _startup_program = _startup_program, program
    return old


@contextlib.contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Make layers append to these programs inside the block."""
    for name, value in (("main_program", main_program), ("startup_program", startup_program)):
        if not isinstance(value, Program) and not (name == "startup_program" and value is None):
            raise TypeError(
                f"{name} of program_guard must be a Program, not {type(value).__name__}."
            )
    old_main = switch_main_program(main_program)
    old_startup = None if startup_program is None else switch_startup_program(startup_program)
    try:
        yield
    finally:
        switch_main_program(old_main)
        if old_startup is not None:
            switch_startup_program(old_startup)


@contextlib.contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Mark ops appended inside the block with their device: 'cpu', 'gpu', 'gpu:1' or 'gpu:all'.

    With `strategy.pipeline` the numbers are the stages that the program is cut into. Other
    kinds ('npu', 'xpu') are only recorded; ops run on the executor's place.
    """
    kind, colon, number = (device or "").partition(":")
    is_known = kind in ("cpu", "") and not colon
    is_known |= kind in ("gpu", "npu", "xpu", "mlu") and (not colon or number == "all")
    is_known |= kind in ("gpu", "npu", "xpu", "mlu") and number.isdigit()
    if not is_known:
        raise ValueError(
            f"device_guard takes 'cpu', 'gpu', 'gpu:N' or 'gpu:all', not {device!r}; other kinds "
            "are 'npu', 'xpu' and 'mlu'."
        )
    program = default_main_program()
    old, program._device = program._device, device or ""
    try:
        yield
    finally:
        program._device = old
