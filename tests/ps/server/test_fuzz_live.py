"""A short attack on a live server; `make chaos` runs the long one."""

import fuzz_live
import pytest

pytestmark = pytest.mark.slow  # starts servers and workers


def test_a_training_under_attack_ends_with_the_same_bits():
    fuzz_live.main(500, seed=3, steps=12)
