"""Nested lists, tuples and dicts of Variables, as `cond`, `while_loop` and `rnn` take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fleetx.static.graph.variable import Variable
from fleetx.static.layers.math import elementwise_mul
from fleetx.static.layers.tensor import transpose


def is_nested(value: Any) -> bool:
    """Return whether a value is a list, a tuple or a dict."""
    return isinstance(value, list | tuple | Mapping)


def _children(value: Any) -> list[Any]:
    return [value[key] for key in sorted(value)] if isinstance(value, Mapping) else list(value)


def flatten(nest: Any) -> list[Any]:
    """Return the leaves in order; dicts go by sorted key, a single value is a list of one."""
    if not is_nested(nest):
        return [nest]
    return [leaf for child in _children(nest) for leaf in flatten(child)]


def pack_sequence_as(structure: Any, flat: Any) -> Any:
    """Return the leaves in `flat` nested like `structure`."""
    leaves = iter(flat)
    packed = _pack(structure, leaves)
    left = sum(1 for _ in leaves)
    if left:
        raise ValueError(
            f"there are {left} values too many for a structure of {len(flatten(structure))}."
        )
    return packed


def _pack(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_nested(structure):
        try:
            return next(leaves)
        except StopIteration:
            raise ValueError("there are fewer values than the structure has places.") from None
    if isinstance(structure, Mapping):
        return {key: _pack(structure[key], leaves) for key in sorted(structure)}
    items = [_pack(child, leaves) for child in structure]
    if hasattr(structure, "_fields"):  # a named tuple
        return type(structure)(*items)
    return type(structure)(items)


def hold_mutable_vars(structure: Any) -> bool:
    """Return whether a structure contains another one."""
    return any(is_nested(child) for child in structure)


def copy_mutable_vars(structure: Any) -> Any:
    """Return a copy of a structure with the same leaves."""
    return pack_sequence_as(structure, flatten(structure))


def map_structure(func: Callable[..., Any], *structures: Any) -> Any:
    """Call `func` on the leaves at each place; nest the results like the first structure."""
    rows = zip(*(flatten(s) for s in structures), strict=True)
    return pack_sequence_as(structures[0], [func(*row) for row in rows])


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Raise a ValueError (TypeError for types) unless both are nested in the same way."""
    if is_nested(nest1) != is_nested(nest2):
        raise ValueError(f"the structures differ: one is {nest1!r}, the other {nest2!r}.")
    if not is_nested(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise TypeError(
            f"the structures differ: one has a {type(nest1).__name__} where the other has a "
            f"{type(nest2).__name__}."
        )
    if isinstance(nest1, Mapping) and isinstance(nest2, Mapping) and set(nest1) != set(nest2):
        raise ValueError(f"the structures differ: keys {sorted(nest1)} and {sorted(nest2)}.")
    if len(nest1) != len(nest2):
        raise ValueError(f"the structures differ: {len(nest1)} and {len(nest2)} elements.")
    for one, other in zip(_children(nest1), _children(nest2), strict=True):
        assert_same_structure(one, other, check_types)


def swap_batch_and_time(x: Variable) -> Variable:
    """Swap the first two dimensions."""
    return transpose(x, [1, 0, *range(2, len(x.shape))])


def select_rows(mask: Variable, new: Variable, old: Variable) -> Variable:
    """Return the rows of `new` where the mask is 1 and those of `old` where it is 0."""
    return elementwise_mul(new, mask, axis=0) - elementwise_mul(old, mask - 1, axis=0)
