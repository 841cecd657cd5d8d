import pytest

from fleetx.static import Scope, scope_guard


@pytest.fixture(autouse=True)
def fresh_scope():
    with scope_guard(Scope()):
        yield
