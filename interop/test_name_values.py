"""Functions of Paddle 2.0's static mode compute what real Paddle computes, with gradients."""

import json

import numpy as np
import pytest
from engines import ours, real


def test_same_values() -> None:
    paddle = real("2.6.2")
    if paddle is None:
        pytest.skip("PADDLE262 does not name a Python with Paddle 2.6.2; use make interop")
    here, there = (
        json.loads(engine.run("name_values.py").partition("FOUND ")[2])
        for engine in (ours("static"), paddle)
    )
    assert len(here) > 10
    assert set(here) == set(there)
    for name, values in there.items():
        assert len(here[name]) == len(values), name
        for mine, theirs in zip(here[name], values, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=name)
