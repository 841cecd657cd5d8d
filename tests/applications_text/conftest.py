"""Every test builds in its own programs, scope and numbering."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fleetx import static


@pytest.fixture(autouse=True)
def fresh_graph() -> Iterator[None]:
    torch.manual_seed(1)
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        static.unique_name.guard(),
    ):
        yield
