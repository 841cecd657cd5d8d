"""Initializers: the op each one adds, its attributes, and the values a startup program gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import initializer as init


def add(initializer: Any, shape: list[int], dtype: str = "float32", seed: int = 0) -> static.Block:
    program = static.Program()
    program.random_seed = seed
    block = program.global_block()
    block.create_parameter(name="p", shape=shape, dtype=dtype, initializer=initializer)
    return block


def value(block: static.Block) -> np.ndarray:
    with static.scope_guard(static.Scope()):
        return static.Executor().run(block.program, fetch_list=["p"])[0]


def test_short_and_long_names() -> None:
    for name in ("Constant", "Uniform", "Normal", "TruncatedNormal", "Xavier", "MSRA", "Bilinear"):
        assert getattr(init, name) is getattr(init, f"{name}Initializer")
    assert init.NumpyArray is init.NumpyArrayInitializer


def test_constant() -> None:
    block = add(init.Constant(2.5), [2, 3])
    assert [op.type for op in block.ops] == ["fill_constant"]
    assert block.ops[0].attr("value") == 2.5
    np.testing.assert_array_equal(value(block), np.full((2, 3), 2.5, "float32"))
    assert value(add(init.Constant(3), [2], "int64")).dtype == np.int64


def test_uniform_takes_the_seed_of_the_program() -> None:
    block = add(init.Uniform(-4.0, 3.0), [5, 10], seed=123)
    assert block.ops[0].type == "uniform_random"
    assert (block.ops[0].attr("min"), block.ops[0].attr("max")) == (-4.0, 3.0)
    assert block.ops[0].attr("seed") == 123
    assert add(init.Uniform(seed=7), [5], seed=123).ops[0].attr("seed") == 7
    np.testing.assert_array_equal(value(block), value(block))
    assert -4.0 <= value(block).min() < value(block).max() <= 3.0
    with pytest.raises(ValueError, match="high"):
        init.Uniform(1.0, 0.0)


@pytest.mark.parametrize("kind", [init.Normal, init.TruncatedNormal])
def test_normal(kind: Any) -> None:
    block = add(kind(2.0, 0.5), [50, 40], seed=1)
    drawn = value(block)
    assert block.ops[0].attr("mean") == 2.0
    assert block.ops[0].attr("std") == 0.5
    assert abs(drawn.mean() - 2.0) < 0.05
    spread = 0.5 if kind is init.Normal else 0.5 * 0.8796  # of a normal cut at two deviations
    assert abs(drawn.std() - spread) < 0.03
    if kind is init.TruncatedNormal:
        assert 1.0 <= drawn.min() < drawn.max() <= 3.0


@pytest.mark.parametrize(
    ("shape", "fan_in", "fan_out"),
    [([5, 10], 5, 10), ([5, 10, 3, 4], 120, 60), ([7], 7, 7)],
)
def test_spread_follows_the_fans(shape: list[int], fan_in: int, fan_out: int) -> None:
    op = add(init.Xavier(), shape).ops[0]
    assert op.attr("max") == pytest.approx(math.sqrt(6 / (fan_in + fan_out)))
    assert op.attr("min") == -op.attr("max")
    op = add(init.Xavier(uniform=False), shape).ops[0]
    assert op.attr("std") == pytest.approx(math.sqrt(2 / (fan_in + fan_out)))
    assert add(init.MSRA(), shape).ops[0].attr("max") == pytest.approx(math.sqrt(6 / fan_in))
    op = add(init.MSRA(uniform=False), shape).ops[0]
    assert op.attr("std") == pytest.approx(math.sqrt(2 / fan_in))
    op = add(init.Xavier(fan_in=12, fan_out=23, seed=134), shape).ops[0]
    assert op.attr("max") == pytest.approx(math.sqrt(6 / 35))
    assert op.attr("seed") == 134
    assert add(init.MSRA(fan_in=12), shape).ops[0].attr("max") == pytest.approx(math.sqrt(0.5))


def test_bilinear() -> None:
    block = add(init.Bilinear(), [1, 2, 3, 3])
    # As Paddle 1.8.5 computes it, with the fraction of the row.
    filter_ = [[0.0625, 0.3125, 0.4375], [0.1875, 0.6875, 0.6875], [0.1875, 0.4375, 0.3125]]
    np.testing.assert_allclose(value(block)[0, 0], filter_)
    assert block.ops[0].type == "assign_value"
    for shape in ([1, 2, 2], [1, 1, 2, 3]):
        with pytest.raises(ValueError, match="Bilinear needs"):
            add(init.Bilinear(), shape)
    with pytest.raises(ValueError, match="float32"):
        add(init.Bilinear(), [1, 1, 2, 2], "float64")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
def test_array(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    np.testing.assert_array_equal(value(add(init.NumpyArray(array), [2, 3], dtype)), array)
    with pytest.raises(TypeError, match="numpy.ndarray"):
        init.NumpyArray([1.0])


def test_half_precision_is_drawn_in_float32_and_cast() -> None:
    for kind, op_type in ((init.Xavier(), "uniform_random"), (init.Constant(1.0), "fill_constant")):
        block = add(kind, [4, 4], "float16")
        assert [op.type for op in block.ops] == [op_type, "cast"]
        assert block.ops[1].attr("out_dtype") == static.VarType.FP16
        assert value(block).dtype == np.float16


def test_a_shared_parameter_keeps_its_first_initializer() -> None:
    block = add(init.Constant(1.0), [2])
    block.create_parameter(name="p", shape=[2], dtype="float32", initializer=init.Constant(2.0))
    assert len(block.ops) == 1
    np.testing.assert_array_equal(value(block), [1.0, 1.0])


def test_only_floating_types_are_drawn() -> None:
    for kind in (init.Uniform(), init.Normal(), init.Xavier()):
        with pytest.raises(TypeError, match="int32"):
            add(kind, [2], "int32")


@pytest.fixture
def global_initializers() -> Iterator[None]:
    init.set_global_initializer(init.Constant(3.0), init.Constant(4.0))
    yield
    init.set_global_initializer(None)


@pytest.mark.usefixtures("global_initializers")
def test_global_initializers_fill_in_where_the_attribute_names_none() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        x = static.data("x", [None, 2])
        static.layers.fc(x, 2)
        static.layers.fc(x, 2, param_attr=static.ParamAttr(initializer=init.Constant(5.0)))
    values = {op.output("Out")[0]: op.attr("value") for op in startup.global_block().ops}
    assert values == {"fc_0.w_0": 3.0, "fc_0.b_0": 4.0, "fc_1.w_0": 5.0, "fc_1.b_0": 4.0}
    with pytest.raises(TypeError, match="Initializer"):
        init.set_global_initializer(3.0)


def test_init_on_cpu_is_kept_in_the_op() -> None:
    with init.init_on_cpu():
        assert init.force_init_on_cpu()
        assert add(init.Constant(1.0), [2]).ops[0].attr("force_cpu") is True
    assert not init.force_init_on_cpu()
