"""Every test starts with empty default programs, names and values."""

import pytest

from fleetx import static
from fleetx.static.program import switch_main_program, switch_startup_program


@pytest.fixture(autouse=True)
def fresh_programs():
    main, startup = static.Program(), static.Program()
    old = switch_main_program(main), switch_startup_program(startup)
    try:
        with static.unique_name.guard(), static.scope_guard(static.Scope()):
            yield
    finally:
        switch_main_program(old[0])
        switch_startup_program(old[1])
