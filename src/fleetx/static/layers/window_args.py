"""Sizes and paddings of convolution and pooling layers, in all accepted forms."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_choice


def convert_to_list(value: Any, n: int, name: str, dtype: type = int) -> list[Any]:
    """Return `value` as a list of n integers; one integer stands for all of them."""
    if isinstance(value, dtype):
        return [value] * n
    try:
        values = list(value)
    except TypeError:
        values = []
    if len(values) != n:
        raise ValueError(f"{name} must be {dtype.__name__} or {n} of them, but received {value!r}.")
    for item in values:
        try:
            dtype(item)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} must be {dtype.__name__} or {n} of them, but received {value!r}."
            ) from error
    return values


def patch_attrs(sizes: Any, strides: Any, paddings: Any, dilations: Any) -> dict[str, list[int]]:
    """Return the attributes of `unfold` and `fold` for the windows of images."""
    if isinstance(paddings, list | tuple) and len(paddings) == 2:
        paddings = [*paddings, *paddings]
    return {
        "kernel_sizes": convert_to_list(sizes, 2, "kernel_sizes"),
        "strides": convert_to_list(strides, 2, "strides"),
        "paddings": convert_to_list(paddings, 4, "paddings"),
        "dilations": convert_to_list(dilations, 2, "dilations"),
    }


def check_use_cudnn(use_cudnn: Any, layer: str, error: type[Exception] = ValueError) -> None:
    """Raise an error unless `use_cudnn` is a bool."""
    if not isinstance(use_cudnn, bool):
        raise error(f"use_cudnn of {layer} must be True or False, but received {use_cudnn!r}.")


def resolve_padding(
    padding: Any, n: int, channel_last: bool, layer: str, *, pairs: bool = False
) -> tuple[list[int], str]:
    """Return a layer's padding as the op takes it, and the padding algorithm.

    Args:
        padding: an int; n ints; 2n ints (before and after each axis); a pair for each axis of the
            input; or one of the words SAME and VALID.
        n: the number of spatial axes.
        channel_last: whether the channels are the input's last axis.
        layer: the layer's name, for messages.
        pairs: keep a begin and an end per axis, even where they are equal.
    """
    if isinstance(padding, str):
        check_choice(padding.upper(), "padding", ("SAME", "VALID"), layer)
        return [0] * (2 * n if pairs else n), padding.upper()
    if isinstance(padding, list | tuple) and len(padding) == n + 2 and _is_pair(padding[0]):
        outer = (padding[0], padding[-1] if channel_last else padding[1])
        if any(list(p) != [0, 0] for p in outer):
            raise ValueError(
                f"{layer} cannot pad the batch or the channels, but padding is {padding!r}."
            )
        spatial = padding[1:-1] if channel_last else padding[2:]
        padding = [p for pair in spatial for p in pair]
    if isinstance(padding, list | tuple) and len(padding) == 2 * n:
        both = convert_to_list(padding, 2 * n, "padding")
    else:
        each = convert_to_list(padding, n, "padding")
        both = [p for p in each for _ in range(2)]
    if pairs or both[0::2] != both[1::2]:
        return both, "EXPLICIT"
    return both[0::2], "EXPLICIT"


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple)
