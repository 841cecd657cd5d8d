"""The element types that layers of Paddle 1.8 take, where the engine takes more.

Later releases widened these lists, and `paddle.tensor` follows them. Programs and tests written for
`paddle.fluid` expect the narrow ones, and a TypeError for every other type.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from fleetx.static.building.argument_checks import check_dtype
from fleetx.static.graph.variable import Variable

_FLOATS = ("float32", "float64")
_INTS = ("int32", "int64")
_WIDE = (*_FLOATS, *_INTS)
_NUMBERS = ("float16", *_WIDE)
_SORTED = (*_WIDE, "int16", "uint8")
_PAIR = {"x": _NUMBERS, "y": _NUMBERS}
_COMPARED = {"x": _WIDE, "y": _WIDE}

TYPES: dict[str, dict[str, tuple[str, ...]]] = {
    **{
        f"elementwise_{kind}": _PAIR
        for kind in ("add", "div", "floordiv", "max", "min", "mod", "mul", "pow", "sub")
    },
    **dict.fromkeys(
        ("equal", "greater_equal", "greater_than", "less_equal", "less_than", "not_equal"),
        _COMPARED,
    ),
    **dict.fromkeys(("dist", "addmm"), {"x": _FLOATS, "y": _FLOATS}),
    **dict.fromkeys(
        ("log", "log1p", "logsumexp", "l2_normalize", "maxout", "mish", "prelu", "selu"),
        {"x": _FLOATS},
    ),
    **dict.fromkeys(("tril", "triu"), {"input": _WIDE}),
    **dict.fromkeys(("zeros_like", "ones_like"), {"x": ("bool", *_WIDE)}),
    **dict.fromkeys(("argmax", "argmin"), {"x": _SORTED}),
    **dict.fromkeys(("reduce_sum", "reduce_mean", "shape", "strided_slice"), {"input": _WIDE}),
    **dict.fromkeys(("isfinite", "unique", "unique_with_counts", "sum", "pow"), {"x": _WIDE}),
    **dict.fromkeys(("reshape", "transpose"), {"x": _NUMBERS}),
    "addcmul": {"input": _WIDE, "tensor1": _WIDE, "tensor2": _WIDE},
    "argsort": {"input": _SORTED},
    "assign": {"input": (*_NUMBERS, "bool")},
    "cast": {"x": (*_NUMBERS, "bool", "uint8")},
    "clip_by_norm": {"x": ("float32",)},
    "concat": {"input": _NUMBERS},
    "crop": {"x": ("float32",)},
    "crop_tensor": {"x": _WIDE},
    "diag": {"diagonal": _WIDE},
    "dice_loss": {"input": _FLOATS},
    "dot": _COMPARED,
    "expand": {"x": ("bool", *_WIDE)},
    "expand_as": {"x": ("bool", *_WIDE), "target_tensor": ("bool", *_WIDE)},
    "flatten": {"x": (*_WIDE, "int8")},
    "index_sample": {"x": _WIDE},
    "index_select": {"input": _WIDE},
    "linspace": {"start": _FLOATS, "stop": _FLOATS},
    "multiplex": {"inputs": _WIDE},
    "pad_constant_like": {"y": _WIDE},
    "reverse": {"x": (*_WIDE, "uint8")},
    "roll": {"input": _NUMBERS},
    "sequence_first_step": {"input": ("float32",)},
    "sequence_last_step": {"input": ("float32",)},
    "sequence_pool": {"input": ("float32",)},
    "sequence_reverse": {"x": (*_WIDE, "int8")},
    "squeeze": {"input": (*_NUMBERS, "int8")},
    "sums": {"input": _WIDE},
    "uniform_random_batch_size_like": {"input": _FLOATS},
}


def narrow(names: dict[str, Any]) -> None:
    """Replace the layers in a module's names that take other types than those of 1.8."""
    for name in TYPES.keys() & names.keys():
        names[name] = _checked(names[name], TYPES[name])


def _checked(layer: Callable[..., Any], types: dict[str, tuple[str, ...]]) -> Callable[..., Any]:
    order = list(inspect.signature(layer).parameters)
    places = [(order.index(argument), argument, kinds) for argument, kinds in types.items()]

    @functools.wraps(layer)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for place, argument, kinds in places:
            value = args[place] if place < len(args) else kwargs.get(argument)
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, Variable):
                    check_dtype(item.dtype, argument, kinds, layer.__name__)
        return layer(*args, **kwargs)

    return checked
