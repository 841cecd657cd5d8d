"""A view of a Variable with the methods of Paddle's VarDesc, and the base of all views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.graph.dtypes import VarType, convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.protobuf.serialize import var_to_bytes


class DescView:
    """Equality and hash by the underlying object."""

    _target: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DescView) and self._target is other._target

    def __hash__(self) -> int:
        return id(self._target)


class VarDescView(DescView):
    """The description of a variable."""

    def __init__(self, var: Variable) -> None:
        self._target = var

    def name(self) -> str:
        """Return the name."""
        return self._target.name

    def id(self) -> int:
        """Return a unique id of the variable."""
        return id(self._target)

    def set_name(self, name: str | bytes) -> None:
        """Rename the variable in its block."""
        self._target.block._rename_var(self._target.name, name_text(name))

    def type(self) -> VarType:
        """Return the kind of variable (LOD_TENSOR, ...)."""
        return self._target.type

    def set_type(self, type: VarType) -> None:
        """Set the kind of variable."""
        self._target.type = VarType(type)

    def shape(self) -> list[int]:
        """Return the dimensions."""
        return list(self._target.shape)

    get_shape = shape

    def set_shape(self, shape: Sequence[int]) -> None:
        """Set the dimensions; the element type is float32 unless another one is set."""
        self._target._set_shape(shape)
        if self._target._dtype is None and self._target.type == VarType.LOD_TENSOR:
            self._target._dtype = VarType.FP32

    def dtype(self) -> VarType:
        """Return the element type; float32 where none was set."""
        return VarType.FP32 if self._target.dtype is None else self._target.dtype

    def set_dtype(self, dtype: Any) -> None:
        """Set the element type."""
        self._target._dtype = convert_dtype(dtype)

    def lod_level(self) -> int:
        """Return the LoD level of the variable."""
        return self._target.lod_level

    def set_lod_level(self, level: int) -> None:
        """Set the LoD level of the variable."""
        self._target._lod_level = level

    def persistable(self) -> bool:
        """Return whether the value is kept between runs."""
        return self._target.persistable

    def set_persistable(self, persistable: bool) -> None:
        """Set whether the value is kept between runs."""
        self._target.persistable = persistable

    def stop_gradient(self) -> bool:
        """Return whether gradients stop at this variable."""
        return self._target.stop_gradient

    def set_stop_gradient(self, stop: bool) -> None:
        """Set whether gradients stop at this variable."""
        self._target.stop_gradient = stop

    def is_parameter(self) -> bool:
        """Return whether this is a Parameter."""
        return self._target.is_parameter

    def need_check_feed(self) -> bool:
        """Return whether feeds are checked against shape and type."""
        return self._target.need_check_feed

    def set_need_check_feed(self, need: bool) -> None:
        """Set whether feeds are checked against shape and type."""
        self._target.need_check_feed = need

    # -- what a READER variable yields -------------------------------------------------------------
    def shapes(self) -> list[list[int]]:
        """Return the shapes of a reader's batches."""
        return list(self._target.__dict__.get("_reader_shapes", []))

    def set_shapes(self, shapes: Sequence[Sequence[int]]) -> None:
        """Set the shapes of a reader's batches."""
        self._target.__dict__["_reader_shapes"] = [list(shape) for shape in shapes]

    def dtypes(self) -> list[VarType]:
        """Return the element types of a reader's batches."""
        return list(self._target.__dict__.get("_reader_dtypes", []))

    def set_dtypes(self, dtypes: Sequence[Any]) -> None:
        """Set the element types of a reader's batches."""
        self._target.__dict__["_reader_dtypes"] = [convert_dtype(dtype) for dtype in dtypes]

    def lod_levels(self) -> list[int]:
        """Return the LoD levels of a reader's batches."""
        return list(self._target.__dict__.get("_reader_lod_levels", []))

    def set_lod_levels(self, levels: Sequence[int]) -> None:
        """Set the LoD levels of a reader's batches."""
        self._target.__dict__["_reader_lod_levels"] = list(levels)

    def serialize_to_string(self) -> bytes:
        """Return the variable as a VarDesc protobuf."""
        return var_to_bytes(self._target)


def name_text(name: str | bytes) -> str:
    """Return a name, decoded if it is bytes."""
    return name.decode() if isinstance(name, bytes) else name
