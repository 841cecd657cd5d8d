"""Layers on selected rows, the sparse gradients of tables."""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

from fleetx.exports import export_defined
from fleetx.static.building.op_layer import op_layer
from fleetx.static.graph.variable import Variable


@op_layer({"X": "x"})
def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Return selected rows in order, with those that occur more than once added up."""


@op_layer({"X": "x"})
def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Return the values of selected rows as a dense tensor."""


export_defined(globals())
