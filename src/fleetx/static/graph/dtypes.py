"""Variable kinds and element types, with the numbers that Paddle's files and scripts use.

`VarType` is both: the element types of tensors (FP32, INT64, ...) and the kinds of variables
(LOD_TENSOR, LOD_TENSOR_ARRAY, READER, ...), because one protobuf enumeration holds them all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fleetx.checkpoint.program_desc import VarType
from fleetx.static.errors import UnknownTypeError

# (enum, torch, numpy name, further spellings)
_TABLE: list[tuple[VarType, torch.dtype, str, tuple[str, ...]]] = [
    (VarType.BOOL, torch.bool, "bool", ()),
    (VarType.INT16, torch.int16, "int16", ()),
    (VarType.INT32, torch.int32, "int32", ()),
    (VarType.INT64, torch.int64, "int64", ("int", "long")),
    (VarType.FP16, torch.float16, "float16", ("half",)),
    (VarType.FP32, torch.float32, "float32", ("float",)),
    (VarType.FP64, torch.float64, "float64", ("double",)),
    (VarType.UINT8, torch.uint8, "uint8", ()),
    (VarType.INT8, torch.int8, "int8", ()),
    (VarType.BF16, torch.bfloat16, "bfloat16", ()),
    (VarType.COMPLEX64, torch.complex64, "complex64", ()),
    (VarType.COMPLEX128, torch.complex128, "complex128", ()),
]
_TO_TORCH = {v: t for v, t, _, _ in _TABLE}
_FROM_TORCH = {t: v for v, t, _, _ in _TABLE}
_TO_NAME = {v: n for v, _, n, _ in _TABLE}
_FROM_NAME = {s: v for v, _, n, more in _TABLE for s in (n, *more)}

FLOATING = frozenset(
    {
        VarType.FP16,
        VarType.FP32,
        VarType.FP64,
        VarType.BF16,
        VarType.COMPLEX64,
        VarType.COMPLEX128,
    }
)


def convert_dtype(dtype: Any) -> VarType:
    """Return the `VarType` for a VarType, its number, a torch dtype, a NumPy dtype or a name."""
    if isinstance(dtype, VarType):
        return dtype
    if isinstance(dtype, torch.dtype):
        return _FROM_TORCH[dtype]
    if isinstance(dtype, str) and dtype in _FROM_NAME:
        return _FROM_NAME[dtype]
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        return VarType(dtype)
    try:
        name = np.dtype(dtype).name
    except TypeError as error:
        raise UnknownTypeError(
            f"{dtype!r} is not a data type; use one of {', '.join(_TO_NAME.values())}."
        ) from error
    if name == "uint16":  # NumPy arrays hold bfloat16 as uint16
        return VarType.BF16
    if name not in _FROM_NAME:
        raise UnknownTypeError(
            f"data type {name!r} is not supported; use one of {', '.join(_FROM_NAME)}."
        )
    return _FROM_NAME[name]


def to_torch(dtype: Any) -> torch.dtype:
    """Return the torch dtype of anything `convert_dtype` understands."""
    kind = convert_dtype(dtype)
    if kind not in _TO_TORCH:
        raise TypeError(f"{kind} is a kind of variable, not an element type.")
    return _TO_TORCH[kind]


def dtype_name(dtype: Any) -> str:
    """Return the NumPy name ('float32', 'int64', ...) of a data type."""
    kind = convert_dtype(dtype)
    return _TO_NAME.get(kind, kind.name.lower())


def to_numpy(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a data type; bfloat16 is held as uint16."""
    name = dtype_name(dtype)
    return np.dtype("uint16" if name == "bfloat16" else name)


def is_floating(dtype: Any) -> bool:
    """Return whether gradients can flow through tensors of this type."""
    return dtype is not None and convert_dtype(dtype) in FLOATING
