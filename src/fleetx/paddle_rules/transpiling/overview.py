"""The placement of variables on servers: `program._parameters_on_pservers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetx.paddle_rules.transpiling.server_slices import SHARED, Layout
from fleetx.static.graph.program import Program


@dataclass(frozen=True)
class PlacedShape:
    """The name and form of a variable or of a slice of it."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    type: Any
    lod_level: int
    persistable: bool


@dataclass(frozen=True)
class PlacedVariable:
    """A variable, or a slice of it, on a server."""

    origin: PlacedShape
    slice: PlacedShape
    is_slice: bool
    block_id: int
    offset: int
    vtype: str
    """"Param", "RemotePrefetch" (rows are fetched) or "Optimizer" (state of an update)."""
    endpoint: str


@dataclass
class PlacedVariables:
    """All variables on servers."""

    distributed_vars: list[PlacedVariable] = field(default_factory=list)

    def get_distributed_var_by_slice(self, var_name: str) -> PlacedVariable | None:
        """Return the origin of a slice, None if there is no slice of this name."""
        return next((v for v in self.distributed_vars if v.slice.name == var_name), None)

    def get_distributed_var_by_origin_and_ep(
        self, origin_var_name: str, endpoint: str
    ) -> PlacedVariable | None:
        """Return the part of a variable on a server, None if it has none."""
        found = self.get_distributed_vars_by_ep(endpoint)
        return next((v for v in found if v.origin.name == origin_var_name), None)

    def get_distributed_vars_by_vtypes(self, vtypes: Sequence[str], groupby: bool = False) -> Any:
        """Return the variables of some kinds; with `groupby` a dict of them by origin."""
        found = [v for v in self.distributed_vars if v.vtype in vtypes]
        if not groupby:
            return found
        groups: dict[str, list[PlacedVariable]] = {}
        for var in found:
            groups.setdefault(var.origin.name, []).append(var)
        return groups

    def get_distributed_vars_by_ep(
        self, endpoint: str, vtype: str | None = None
    ) -> list[PlacedVariable]:
        """Return the variables on a server."""
        found = [v for v in self.distributed_vars if v.endpoint == endpoint]
        return [v for v in found if vtype is None or v.vtype == vtype]


def placed_variables(layout: Layout, main: Program) -> PlacedVariables:
    """Return the placement of the variables of a program."""
    block, found = main.global_block(), []
    for name, pieces in layout.pieces.items():
        whole = _described(block.var(name))
        for number, piece in enumerate(pieces):
            cut = _described(block.var(name), piece.param.name, piece.param.shape)
            kind = "RemotePrefetch" if name in layout.lookups else "Param"
            found.append(
                PlacedVariable(
                    whole, cut, len(pieces) > 1, number, piece.param.start, kind, piece.endpoint
                )
            )
    for op in layout.updates:
        param = op.input("Param")
        if not param or not op.input("LearningRate"):
            continue
        shape = tuple(block.var(param[0]).shape)
        state = [n for slot, names in op.inputs.items() if slot not in SHARED for n in names]
        for number, piece in enumerate(layout.pieces.get(param[0], ())):
            for name in state:
                var = block.var(name)
                is_cut = len(layout.pieces[param[0]]) > 1 and tuple(var.shape) == shape
                cut = _described(var, name, piece.param.shape if is_cut else None)
                found.append(
                    PlacedVariable(
                        _described(var),
                        cut,
                        is_cut,
                        number if is_cut else 0,
                        piece.param.start if is_cut else 0,
                        "Optimizer",
                        piece.endpoint,
                    )  # fmt: skip
                )
    return PlacedVariables(found)


def _described(
    var: Any, name: str | None = None, shape: Sequence[int] | None = None
) -> PlacedShape:
    return PlacedShape(
        name or var.name, tuple(var.shape if shape is None else shape), var.dtype, var.type,
        var.lod_level, var.persistable,
    )  # fmt: skip
