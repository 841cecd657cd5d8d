"""C++'s minimal standard generators and libstdc++'s `std::uniform_int_distribution` over them.

Paddle's CPU kernels use these, so that a seed gives the same permutations and crops as there.
"""

from __future__ import annotations

_MODULUS = 2**31 - 1
RAND0 = 16807
"""The multiplier of `std::minstd_rand0`."""
RAND = 48271
"""The multiplier of `std::minstd_rand`."""


class MinimalStandard:
    """x * multiplier mod (2**31 - 1), started with a seed and advanced by `skip` numbers."""

    def __init__(self, seed: int, multiplier: int, *, skip: int = 0) -> None:
        state = seed % 2**64 % _MODULUS or 1
        self._multiplier = multiplier
        self._state = state * pow(multiplier, skip, _MODULUS) % _MODULUS

    def __call__(self) -> int:
        """Return the next number."""
        self._state = self._state * self._multiplier % _MODULUS
        return self._state

    def up_to(self, largest: int) -> int:
        """Return a uniform integer from 0 to `largest`."""
        share = (_MODULUS - 2) // (largest + 1)
        while (number := self() - 1) >= (largest + 1) * share:
            pass  # numbers beyond the last whole interval are drawn again
        return number // share
