"""The base of static models whose rows may be on parameter servers."""

from __future__ import annotations

from typing import Generic, TypeVar

from fleetx.applications.static_model import StaticModel
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.nn import embedding_v2

Sizes = TypeVar("Sizes")


class TableModel(StaticModel, Generic[Sizes]):
    """A static model with tables of rows.

    Args:
        sizes: the sizes; the published ones by default.
        is_sparse: whether gradients hold only the rows of a batch.
        is_distributed: whether rows exist only on parameter servers, in a job with servers.
    """

    default_sizes: type[Sizes]

    def __init__(
        self, sizes: Sizes | None = None, *, is_sparse: bool = True, is_distributed: bool = False
    ) -> None:
        self.sizes = sizes or self.default_sizes()
        self._lookup = {"is_sparse": is_sparse, "is_distributed": is_distributed}
        super().__init__()

    def rows(self, name: str, ids: Variable, shape: list[int], first: object) -> Variable:
        """Return rows of a table by their ids; `first` initialises them."""
        attr = ParamAttr(name=name, initializer=first)
        return embedding_v2(ids, shape, param_attr=attr, **self._lookup)
