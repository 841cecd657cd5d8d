"""The minimal standard generators: the numbers that the C++ standard states, and even draws."""

import pytest

from fleetx.kernels.minstd import RAND, RAND0, MinimalStandard


@pytest.mark.parametrize(("multiplier", "last"), [(RAND0, 1043618065), (RAND, 399268537)])
def test_the_ten_thousandth_number_is_that_of_the_standard(multiplier, last):
    draw = MinimalStandard(1, multiplier)
    assert [draw() for _ in range(10_000)][-1] == last
    assert MinimalStandard(1, multiplier, skip=9_999)() == last


def test_draws_are_even():
    draw = MinimalStandard(5, RAND)
    counts = [0] * 3
    for _ in range(3000):
        counts[draw.up_to(2)] += 1
    assert min(counts) > 900
