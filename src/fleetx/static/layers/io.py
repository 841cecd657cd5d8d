"""Inputs of a program: variables that are fed in every run.

`data` is Fluid's (it prepends a batch dimension); `static_data` is that of `fluid.data` and
`paddle.static.data` (the shape is used as given, and every feed is checked against it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable

__all__ = ["data", "load"]


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Return the variable to feed under `name`.

    Args:
        name: the key in the feed.
        shape: the dimensions of one example; None or -1 where they vary.
        append_batch_size: prepend -1, the batch dimension, unless `shape` has a dimension that
            varies.
        lod_level: levels of variable-length sequences.
        type: the kind of variable.
        stop_gradient: whether no gradient is computed for it.
    """
    dims = _dimensions(name, shape)
    if append_batch_size and all(dim >= 0 for dim in dims):
        dims = [-1, *dims]
    return _create(
        name, dims, dtype, lod_level, type=type, stop_gradient=stop_gradient, need_check_feed=False
    )


def static_data(
    name: str, shape: Sequence[int | None], dtype: Any = None, lod_level: int = 0
) -> Variable:
    """Return the variable to feed under `name`; `shape` includes the batch (None or -1)."""
    return _create(
        name,
        _dimensions(name, shape),
        "float32" if dtype is None else dtype,
        lod_level,
        stop_gradient=True,
        need_check_feed=True,
    )


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> Variable:
    """Read a variable, in every run, from a file that `save_vars` wrote, and return it."""
    attrs: dict[str, Any] = {"file_path": file_path}
    if load_as_fp16 is not None:
        attrs["load_as_fp16"] = load_as_fp16
    LayerHelper("load", out=out).append_op(type="load", outputs={"Out": [out]}, attrs=attrs)
    return out


def _dimensions(name: Any, shape: Any) -> list[int]:
    check_type(name, "name", (str, bytes), "data")
    check_type(shape, "shape", (list, tuple), "data")
    return [-1 if dim is None else int(dim) for dim in shape]


def _create(name: Any, shape: list[int], dtype: Any, lod_level: int, **options: Any) -> Variable:
    text = name.decode() if isinstance(name, bytes) else name
    return LayerHelper("data", name=text).create_global_variable(
        name=text, shape=shape, dtype=dtype, lod_level=lod_level, is_data=True, **options
    )
