"""Variables of a fresh program to feed."""

import pytest

from fleetx.static import unique_name
from fleetx.static.graph.default_programs import program_guard
from fleetx.static.graph.program import Program


@pytest.fixture
def program():
    main = Program()
    with program_guard(main, Program()), unique_name.guard():
        yield main


@pytest.fixture
def variable(program):
    def make(name, shape, dtype="float32", lod_level=0):
        return program.global_block().create_var(
            name=name, shape=shape, dtype=dtype, lod_level=lod_level, is_data=True
        )

    return make
