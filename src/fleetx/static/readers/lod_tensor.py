"""LoDTensor: a tensor whose first dimension packs sequences of different lengths.

The level of detail (LoD) is where the sequences begin: offsets [[0, 2, 5]], or the same as
lengths [[2, 3]], split five rows into two sequences. Several levels nest: the lengths of one
level count sequences of the next. Feeds, readers and fetches use this type for every tensor; one
without sequences has an empty LoD.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

from fleetx.static.errors import ArgumentError, EnforceNotMet, InvalidLoDError
from fleetx.static.graph.dtypes import VarType, convert_dtype, to_torch
from fleetx.static.run.place import CPUPlace, Place

LoD = list[list[int]]
_SETTABLE = "?efdbhilqBH"  # NumPy type codes: bool, floats, signed integers, uint8, uint16
_DTYPE_WORDS = {"float32": "float", "float64": "double", "int32": "int"}


class LoDTensor:
    """A NumPy array or torch tensor with its LoD; empty until `set` is called.

    `LoDTensor(value)` wraps an array without copying it; `LoDTensor([[2, 3]])`, a list, gives the
    sequence lengths of data that is set later.
    """

    def __init__(self, value: Any = None, lod: Iterable[Iterable[int]] = ()) -> None:
        self._value: Any = None
        self._lod: LoD = []
        self._at: Place = CPUPlace()
        if isinstance(value, list):
            self._lod = _offsets(value)
        elif isinstance(value, LoDTensor):
            self._value, self._lod, self._at = value._value, value.lod(), value._at
        elif value is not None:
            self.set(value, zero_copy=True)
        if lod:
            self.set_lod(lod)

    @property
    def value(self) -> Any:
        """The array or tensor itself, not copied; None before `set`."""
        return self._value

    def set(self, array: Any, place: Place | None = None, zero_copy: bool = False) -> None:
        """Copy (or share) the data; `place` is where a program uses it. The LoD is kept."""
        if isinstance(array, LoDTensor):
            array = array._value
        if isinstance(array, torch.Tensor):
            array = array if zero_copy else array.detach().clone()
        else:
            array = np.asarray(array) if zero_copy else np.array(array)
            if array.dtype.char not in _SETTABLE:
                raise EnforceNotMet(
                    "LoDTensor.set() takes bool, float16/32/64, int8/16/32/64, uint8 or uint16 "
                    f"data, not {array.dtype}."
                )
        self._value = array
        if place is not None:
            self._at = place

    # -- sequences ----------------------------------------------------------------------------
    def lod(self) -> LoD:
        """Return the offsets of each level."""
        return [list(level) for level in self._lod]

    def recursive_sequence_lengths(self) -> LoD:
        """Return the sequence lengths of each level."""
        return [[end - start for start, end in pairwise(level)] for level in self._lod]

    def set_lod(self, lod: Iterable[Iterable[int]]) -> None:
        """Set the offsets of each level; they must fit each other and the number of rows."""
        levels = [[int(offset) for offset in level] for level in lod]
        self._set_levels(levels, f"The LoD {levels} is invalid")

    def set_recursive_sequence_lengths(self, lengths: Iterable[Iterable[int]]) -> None:
        """Set the sequence lengths of each level; they must fit each other and the rows."""
        lists = [[int(length) for length in level] for level in lengths]
        self._set_levels(_offsets(lists), f"The recursive sequence lengths {lists} are invalid")

    def _set_levels(self, levels: LoD, failure: str) -> None:
        problem = _lod_problem(levels, self._rows())
        if problem:
            raise InvalidLoDError(f"{failure}: {problem}.")
        self._lod = levels

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Return whether the LoD fits the current data."""
        return _lod_problem(self._lod, self._rows()) is None

    # -- data -----------------------------------------------------------------------------------
    def shape(self) -> list[int]:
        """Return the dimensions ([0] before `set`)."""
        return [0] if self._value is None else [int(dim) for dim in self._value.shape]

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the data as a NumPy array, which shares memory with data on the CPU."""
        value = self._value
        if value is None:
            return np.array([])
        if not isinstance(value, torch.Tensor):
            return value
        if value.requires_grad or not value.is_cpu:
            value = value.detach().cpu()
        if value.dtype is torch.bfloat16:
            # NumPy has no bfloat16: its bits are stored as uint16.
            value = value.view(torch.uint16)
        return value.numpy()

    def _to_dlpack(self) -> Any:
        return torch.utils.dlpack.to_dlpack(torch.as_tensor(self._value))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"Changing {array.dtype} data to {dtype} needs a copy.")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __getitem__(self, index: Any) -> LoDTensor:
        """Return a slice without LoD; indexing by an integer keeps the dimension, with size 1."""
        parts = index if isinstance(index, tuple) else (index,)
        keep = tuple(_as_slice(p, d) for p, d in zip(parts, self.shape(), strict=False))
        if len(keep) < len(parts):
            raise IndexError(f"{len(parts)} indices were given for shape {self.shape()}.")
        part = LoDTensor()
        part.set(self._value[keep], self._at, zero_copy=True)
        return part

    def __repr__(self) -> str:
        if self._value is None:
            return "LoDTensor()"
        return f"LoDTensor(shape={self.shape()}, dtype={self.numpy().dtype}, lod={self._lod})"

    def __str__(self) -> str:
        if self._value is None:
            return repr(self)
        levels = ", ".join("{" + ", ".join(map(str, level)) + "}" for level in self._lod)
        name = self.numpy().dtype.name
        lines = [f"\tlod: {{{levels}}}"] if self._lod else []
        lines += [
            f"\tdim: {', '.join(map(str, self.shape()))}",
            "\tlayout: NCHW",
            f"\tdtype: {_DTYPE_WORDS.get(name, name + '_t')}",
            f"\tdata: [{' '.join(f'{item:g}' for item in self.numpy().ravel().tolist())}]",
        ]
        return "\n".join(lines) + "\n"

    # -- Fluid's lower-case interface ----------------------------------------------------------
    def _dtype(self) -> VarType:
        if self._value is None:
            raise EnforceNotMet("The tensor has no type yet: call set() first.")
        return convert_dtype(self._value.dtype)

    def _place(self) -> Place:
        return self._at

    def _is_initialized(self) -> bool:
        return self._value is not None

    def _get_dims(self) -> list[int]:
        return self.shape()

    def _set_dims(self, dims: Sequence[int]) -> None:
        count = int(np.prod(dims))
        if self._value is None:
            self._value = np.zeros(tuple(dims), "float32")
        elif count <= int(np.prod(self.shape())):
            self._value = self._value.reshape(-1)[:count].reshape(tuple(dims))
        else:
            raise EnforceNotMet(f"A tensor of shape {self.shape()} cannot hold shape {list(dims)}.")

    def _alloc_float(self, place: Place | None = None) -> None:
        self._mutable_data(place, VarType.FP32)

    def _alloc_double(self, place: Place | None = None) -> None:
        self._mutable_data(place, VarType.FP64)

    def _alloc_int(self, place: Place | None = None) -> None:
        self._mutable_data(place, VarType.INT32)

    def _mutable_data(self, place: Place | None, dtype: VarType) -> int:
        """Allocate memory of an element type; return its address."""
        if self._value is None or self._dtype() != dtype:
            dims = (0,) if self._value is None else tuple(self.shape())
            self.set(torch.zeros(dims, dtype=to_torch(dtype)), place, zero_copy=True)
        value = self._value
        return int(value.data_ptr() if isinstance(value, torch.Tensor) else value.ctypes.data)

    def _get_float_element(self, index: int) -> float:
        return float(self._elements()[index])

    def _set_float_element(self, index: int, element: float) -> None:
        self._elements()[index] = element

    def _elements(self) -> Any:
        """Return all elements in one dimension, in the tensor's memory."""
        value = self._value
        if isinstance(value, torch.Tensor) and value.is_cpu and value.dtype is not torch.bfloat16:
            # An array is indexed faster than a tensor.
            value = (value.detach() if value.requires_grad else value).numpy()
        return value.reshape(-1)

    _get_double_element, _set_double_element = _get_float_element, _set_float_element

    def _clear(self) -> None:
        self._value = None

    def _copy(self, place: Place) -> LoDTensor:
        copy = LoDTensor()
        copy.set(self.numpy(), place)
        copy._lod = self.lod()
        return copy

    def _share_data_with(self, other: LoDTensor) -> LoDTensor:
        self._value = other._value
        return self

    def _rows(self) -> int:
        return self.shape()[0] if self.shape() else 0


class LoDTensorArray(list[LoDTensor]):
    """A list that holds LoDTensors only."""

    def append(self, tensor: LoDTensor) -> None:
        """Append a LoDTensor."""
        if not isinstance(tensor, LoDTensor):
            raise TypeError(f"A LoDTensorArray holds LoDTensors, not {type(tensor).__name__}.")
        super().append(tensor)

    def _move_to_list(self) -> list[LoDTensor]:
        items = list(self)
        self.clear()
        return items


def create_lod_tensor(
    data: np.ndarray[Any, Any] | list[Any] | LoDTensor,
    recursive_seq_lens: Sequence[Sequence[int]],
    place: Place | None,
) -> LoDTensor:
    """Return a LoDTensor with the given data and sequence lengths.

    An array keeps its shape. A list holds one list per sequence; its items become rows, with a
    last dimension of 1.
    """
    if isinstance(data, LoDTensor):
        data = data.numpy()
    if isinstance(data, list):
        lengths = [len(sequence) for sequence in data]
        if [lengths] != [list(level) for level in recursive_seq_lens]:
            raise ArgumentError(
                f"data and recursive_seq_lens do not match: the sequences have lengths "
                f"{[lengths]}, but recursive_seq_lens is {recursive_seq_lens}."
            )
        rows = np.array([item for sequence in data for item in sequence])
        data = rows.reshape(*rows.shape, 1)
    if not isinstance(data, np.ndarray):
        raise TypeError(
            "create_lod_tensor() takes data as a LoDTensor, a NumPy array or a list, not "
            f"{type(data).__name__}."
        )
    tensor = LoDTensor()
    tensor.set(data, place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


def concat_lod_tensors(tensors: Sequence[Any]) -> LoDTensor:
    """Concatenate the rows and sequences of arrays or LoDTensors."""
    parts = [part if isinstance(part, LoDTensor) else LoDTensor(part) for part in tensors]
    joined = LoDTensor(np.concatenate([part.numpy() for part in parts]))
    lengths = [part.recursive_sequence_lengths() for part in parts]
    if len({len(levels) for levels in lengths}) != 1:
        raise InvalidLoDError(
            "Tensors with and without sequences, or with different numbers of LoD levels, cannot "
            f"be joined: their sequence lengths are {lengths}."
        )
    joined.set_recursive_sequence_lengths(
        [[n for level in levels for n in level] for levels in zip(*lengths, strict=True)]
    )
    return joined


def slice_sequences(tensor: LoDTensor, start: int, stop: int) -> LoDTensor:
    """Return some of the sequences of the first level; rows, if there are no sequences."""
    lod = []
    for level in tensor.lod():
        part = level[start : stop + 1]
        lod.append([offset - part[0] for offset in part])
        start, stop = part[0], part[-1]
    found = tensor[start:stop]
    found.set_lod(lod)
    return found


def split_sequences(tensor: LoDTensor, parts: int) -> list[LoDTensor]:
    """Split the sequences, or rows, into at most so many parts; the last may be smaller."""
    lod = tensor.lod()
    count = len(lod[0]) - 1 if lod else tensor.shape()[0]
    step = max(1, -(-count // parts))
    return [slice_sequences(tensor, i, min(i + step, count)) for i in range(0, count, step)]


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]],
    base_shape: list[int],
    place: Place | None,
    low: int,
    high: int,
) -> LoDTensor:
    """Return a LoDTensor of int64 numbers from `low` to `high`, both included.

    Its shape is the total of the last level's lengths, then `base_shape`.
    """
    if not isinstance(base_shape, list):
        raise ArgumentError(f"base_shape should be a list, not {type(base_shape).__name__}.")
    shape = [sum(recursive_seq_lens[-1]), *base_shape]
    data = np.random.randint(low, high + 1, shape, dtype="int64")
    return create_lod_tensor(data, recursive_seq_lens, place)


def _offsets(lengths: Iterable[Iterable[int]]) -> LoD:
    return [list(accumulate(level, initial=0)) for level in lengths]


def _as_slice(index: Any, size: int) -> slice:
    if isinstance(index, slice):
        return index
    if not isinstance(index, (int, np.integer)):
        raise IndexError(f"A LoDTensor is indexed by numbers and slices, not {index!r}.")
    if not -size <= index < size:
        raise IndexError(f"Index {index} is out of range for a dimension of size {size}.")
    start = int(index) % size
    return slice(start, start + 1)


def _lod_problem(levels: LoD, rows: int) -> str | None:
    """Return why offsets over `rows` rows (0: unknown) are invalid, or None."""
    for number, level in enumerate(levels):
        if len(level) < 2 or level[0] != 0:
            return f"level {number} must start at offset 0 and hold at least one sequence"
        if any(end < start for start, end in pairwise(level)):
            return f"the offsets of level {number} must not decrease"
        below = len(levels[number + 1]) - 1 if number + 1 < len(levels) else rows
        if level[-1] != below and below:
            what = "rows" if number + 1 == len(levels) else f"sequences of level {number + 1}"
            return f"level {number} covers {level[-1]} {what}, but there are {below}"
    return None
