"""Every test builds in its own programs, scope and numbering."""

import pytest


@pytest.fixture(autouse=True)
def _own_graph(fresh_graph: None) -> None:
    """Ask for a fresh graph in all tests of this folder."""
