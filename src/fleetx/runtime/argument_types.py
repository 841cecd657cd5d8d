"""Types of arguments of commands: numbers within limits, with an error that says which."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def within(
    kind: type[Number], is_valid: Callable[[float], bool], what: str
) -> Callable[[str], Number]:
    """Return a type for `add_argument`; `what` completes "... is not" for invalid values."""

    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            pass
        else:
            if is_valid(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return parse


count = within(int, lambda value: value >= 1, "a whole number of at least 1")
seconds = within(float, lambda value: 0 < value < math.inf, "a number of seconds above 0")
