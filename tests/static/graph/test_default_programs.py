"""The default programs: `global_seed` reaches them, `program_guard` replaces them."""

import pytest

from fleetx import static
from fleetx.static.graph.default_programs import (
    default_main_program,
    default_startup_program,
    program_guard,
)


def test_global_seed_reaches_the_default_programs(fresh_graph):
    program = static.Program()
    program.global_seed(7)
    programs = (program, default_main_program(), default_startup_program())
    assert [each.random_seed for each in programs] == [7, 7, 7]


def test_a_guard_restores_the_programs_after_an_error(fresh_graph):
    before = default_main_program(), default_startup_program()

    def fail() -> None:
        with program_guard(static.Program()):
            assert default_main_program() is not before[0]
            assert default_startup_program() is before[1]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (default_main_program(), default_startup_program()) == before
