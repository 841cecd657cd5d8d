"""The binding of a program: what copies take along, and what belongs to one program object."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fleetx import static
from fleetx.static.graph.program_binding import ProgramBinding

ALONG = {
    "readers", "before_run", "gradient_exchange", "servers", "decision", "offloads_checkpoints",
    "runs_as", "pipeline",
}  # fmt: skip
OWN = {"first_run", "measured", "updated_by", "compiled_as", "steps"}


class Port:
    """A reader of a variable."""

    output_names = ("x",)


@pytest.fixture
def bound() -> Any:
    """Return a program whose binding has no field as it was."""
    program = static.Program()
    binding = program.binding
    binding.readers.append(Port())
    binding.before_run.append(lambda scope: None)
    binding.steps[static.Executor()] = {}
    for name in (ALONG | OWN) - {"readers", "before_run", "steps"}:
        setattr(binding, name, object())
    return program


def test_every_field_is_in_one_group() -> None:
    assert {field.name for field in dataclasses.fields(ProgramBinding)} == ALONG | OWN


def test_a_copy_takes_along_what_goes_with_the_ops(bound: Any) -> None:
    for copy in (bound.clone(), bound.clone(for_test=True), bound._inference_optimize(False)):
        fresh = ProgramBinding()
        for name in ALONG:
            assert getattr(copy.binding, name) == getattr(bound.binding, name), name
        for name in OWN - {"steps"}:
            assert getattr(copy.binding, name) == getattr(fresh, name), name
        assert not copy.binding.steps
        copy.binding.before_run.clear()
        assert bound.binding.before_run  # lists are the copy's own


def test_taking_over_ops_keeps_what_belongs_to_the_program(bound: Any) -> None:
    before = dataclasses.replace(bound.binding)
    other = static.Program()
    other.binding.servers = object()
    bound.take_over(other)
    for name in ALONG:
        assert getattr(bound.binding, name) == getattr(other.binding, name), name
    for name in OWN:
        assert getattr(bound.binding, name) is getattr(before, name), name


def test_paddles_name_of_the_compiled_program() -> None:
    program, compiled = static.Program(), static.CompiledProgram(static.Program())
    program._graph = compiled
    assert program.binding.compiled_as is compiled
    assert program._graph is compiled
