"""Initializers with the arguments of Paddle 2."""

import math

import numpy as np
import pytest

import fleetx.static as static
from fleetx.static import layers
from fleetx.static.nn import initializer as init


def first_values(initializer, shape):
    main, startup = static.Program(), static.Program()
    scope = static.Scope()
    with static.program_guard(main, startup), static.scope_guard(scope), static.unique_name.guard():
        startup.random_seed = 7
        attr = static.ParamAttr(name="w", initializer=initializer)
        layers.create_parameter(shape, "float32", attr=attr)
        static.Executor().run(startup, scope=scope)
    return np.asarray(scope.find_var("w").get_tensor())


def test_spread_of_random_values():
    shape = [200, 300]
    assert first_values(init.KaimingNormal(), shape).std() == pytest.approx(
        math.sqrt(2 / 200), rel=0.05
    )
    limit = math.sqrt(6 / 500)
    uniform = first_values(init.XavierUniform(), shape)
    assert limit * 0.95 < np.abs(uniform).max() <= limit
    assert first_values(init.XavierNormal(fan_in=100, fan_out=100), shape).std() == pytest.approx(
        0.1, rel=0.05
    )
    leaky = first_values(
        init.KaimingUniform(fan_in=50, negative_slope=1.0, nonlinearity="leaky_relu"), shape
    )
    assert np.abs(leaky).max() <= math.sqrt(3 / 50)
    normal = first_values(init.Normal(mean=2.0, std=0.5), shape)
    assert normal.mean() == pytest.approx(2.0, abs=0.02)
    truncated = first_values(init.TruncatedNormal(std=0.5), shape)
    assert np.abs(truncated).max() <= 1.0


def test_given_values():
    np.testing.assert_array_equal(first_values(init.Constant(3.0), [2]), [3, 3])
    np.testing.assert_array_equal(first_values(init.Assign([[1, 2]]), [1, 2]), [[1, 2]])
    dirac = first_values(init.Dirac(), [3, 2, 3, 3])
    assert dirac.sum() == 2
    assert dirac[0, 0, 1, 1] == dirac[1, 1, 1, 1] == 1


def test_gain():
    assert init.calculate_gain("tanh") == pytest.approx(5 / 3)
    with pytest.raises(ValueError, match="nonlinearity of calculate_gain must be 'sigmoid', "):
        init.calculate_gain("sine")
