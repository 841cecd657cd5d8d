"""Arithmetic, activations, comparisons, reductions: against NumPy, gradients by differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from op_check import check_op

from fleetx import static
from fleetx.static.shapes.infer_shape import ShapeError

RNG = np.random.default_rng(0)


def uniform(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return RNG.uniform(low, high, shape)


def apart(*shape: int) -> np.ndarray:
    """Return values far from each other and from zero, so that differences see no kink."""
    count = int(np.prod(shape))
    values = (np.arange(count) - count / 2 + 0.25) * 0.17
    return RNG.permutation(values).reshape(shape)


BINARY = {
    "elementwise_add": np.add,
    "elementwise_sub": np.subtract,
    "elementwise_mul": np.multiply,
    "elementwise_div": np.divide,
    "elementwise_max": np.maximum,
    "elementwise_min": np.minimum,
    "elementwise_pow": np.power,
    "elementwise_fmax": np.fmax,
    "elementwise_fmin": np.fmin,
}


@pytest.mark.parametrize("type", BINARY)
@pytest.mark.parametrize(
    ("x_shape", "y_shape", "axis", "view"),
    [
        ((2, 3), (2, 3), -1, (2, 3)),
        ((2, 3, 2), (2,), -1, (2,)),
        ((2, 3, 2), (3,), 1, (1, 3, 1)),
        ((2, 3, 2), (2, 3), 0, (2, 3, 1)),
        ((2, 3), (3, 1), 1, (1, 3)),
        ((2, 1, 3), (2, 1), -1, (1, 2, 1)),
        ((3,), (2, 3), -1, (2, 3)),
    ],
)
def test_binary(
    type: str, x_shape: tuple[int, ...], y_shape: tuple[int, ...], axis: int, view: Any
) -> None:
    x, y = apart(*x_shape) + 5.0, apart(*y_shape) + 5.05
    expected = BINARY[type](x, y.reshape(view))
    check_op(type, {"X": x, "Y": y}, {"axis": axis}, {"Out": expected})


def test_binary_lays_a_smaller_x_from_axis() -> None:
    x, y = uniform(3, 1), uniform(2, 3, 4)
    check_op("elementwise_add", {"X": x, "Y": y}, {"axis": 1}, {"Out": x + y})


def test_whole_numbers() -> None:
    x = np.array([-7, 7, -7, 7], "int64")
    y = np.array([2, 2, -2, -2], "int64")
    check_op("elementwise_div", {"X": x, "Y": y}, {}, {"Out": [np.array([-3, 3, 3, -3])]})
    check_op("elementwise_floordiv", {"X": x, "Y": y}, {}, {"Out": x // y})
    check_op("elementwise_mod", {"X": x, "Y": y}, {}, {"Out": x % y})
    check_op("elementwise_mod", {"X": x / 2, "Y": y / 3}, {}, {"Out": (x / 2) % (y / 3)})
    check_op("scale", {"X": x}, {"scale": 2.5, "bias": 1.5}, {"Out": x * 2 + 1})
    check_op("increment", {"X": x[:1]}, {"step": 2.0}, {"Out": x[:1] + 2})
    check_op("clip", {"X": x}, {"min": -1.0, "max": 3.0}, {"Out": x.clip(-1, 3)})
    check_op("pow", {"X": y}, {"factor": 3.0}, {"Out": y**3})


@pytest.mark.parametrize(("larger", "smaller"), [("elementwise_max", 1), ("elementwise_min", 0)])
def test_ties_give_the_gradient_to_y(larger: str, smaller: int) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        block = main.global_block()
        for name in "xy":
            block.create_var(name=name, shape=[2], dtype="float64", is_data=True)
        out, loss = block.create_var(name="out"), block.create_var(name="loss")
        block.append_op(type=larger, inputs={"X": "x", "Y": "y"}, outputs={"Out": out})
        block.append_op(
            type="reduce_sum", inputs={"X": out}, outputs={"Out": loss}, attrs={"reduce_all": True}
        )
        grads = static.gradients([loss], [block.var("x"), block.var("y")])
    feed = {"x": np.array([1.0, 2.0]), "y": np.array([1.0, 1.0])}
    x_grad, y_grad = static.Executor().run(main, feed=feed, fetch_list=grads)
    np.testing.assert_array_equal(x_grad, [0.0, smaller])
    np.testing.assert_array_equal(y_grad, [1.0, 1 - smaller])


def test_shapes_that_do_not_fit_are_refused_when_the_op_is_added() -> None:
    with pytest.raises(ShapeError, match=r"elementwise_add.*\(2, 3\).*\(4,\).*broadcast"):
        check_op("elementwise_add", {"X": uniform(2, 3), "Y": uniform(4)})


def test_scale_sum_minus() -> None:
    x, y = uniform(2, 3), uniform(2, 3)
    check_op("scale", {"X": x}, {"scale": 2.0, "bias": 0.5}, {"Out": 2 * x + 0.5})
    attrs = {"scale": 2.0, "bias": 0.5, "bias_after_scale": False}
    check_op("scale", {"X": x}, attrs, {"Out": 2 * (x + 0.5)})
    check_op("scale", {"X": x, "ScaleTensor": np.array([3.0])}, {}, {"Out": 3 * x})
    check_op("sum", {"X": [x, y, x]}, {}, {"Out": 2 * x + y})
    check_op("sum", {"X": [x]}, {}, {"Out": x})
    check_op("minus", {"X": x, "Y": y}, {}, {"Out": x - y})
    check_op("lerp", {"X": x, "Y": y, "Weight": uniform(2, 3)}, {})
    check_op("atan2", {"X1": x, "X2": y}, {}, {"Out": np.arctan2(x, y)})
    check_op("elementwise_heaviside", {"X": x, "Y": y}, {}, {"Out": np.heaviside(x, y)})


def test_cast_and_increment() -> None:
    x = uniform(2, 3) * 5
    check_op("cast", {"X": x}, {"in_dtype": 6, "out_dtype": 3}, {"Out": x.astype("int64")})
    check_op("cast", {"X": x}, {"in_dtype": 6, "out_dtype": 6}, {"Out": x})
    one = x[:1, :1]
    check_op("increment", {"X": one}, {"step": 0.5}, {"Out": one + 0.5})


def test_limits() -> None:
    x = apart(3, 4)
    check_op("clip", {"X": x}, {"min": -0.5, "max": 0.6}, {"Out": x.clip(-0.5, 0.6)})
    inputs = {"X": x, "Min": np.array([-0.5]), "Max": np.array([0.6])}
    check_op("clip", inputs, {}, {"Out": x.clip(-0.5, 0.6)})
    norm = np.sqrt((x**2).sum())
    check_op("clip_by_norm", {"X": x}, {"max_norm": 0.7}, {"Out": x * 0.7 / norm})
    check_op("clip_by_norm", {"X": x}, {"max_norm": 100.0}, {"Out": x})


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


X = apart(3, 4)
POSITIVE = np.abs(apart(3, 4)) + 0.1
INSIDE = X / 2
ACTIVATIONS: dict[str, tuple[np.ndarray, dict[str, Any], Any]] = {
    "relu": (X, {}, lambda x: np.maximum(x, 0)),
    "tanh": (X, {}, np.tanh),
    "sigmoid": (X, {}, sigmoid),
    "exp": (X, {}, np.exp),
    "expm1": (X, {}, np.expm1),
    "log": (POSITIVE, {}, np.log),
    "log1p": (POSITIVE, {}, np.log1p),
    "log2": (POSITIVE, {}, np.log2),
    "log10": (POSITIVE, {}, np.log10),
    "sqrt": (POSITIVE, {}, np.sqrt),
    "rsqrt": (POSITIVE, {}, lambda x: x**-0.5),
    "square": (X, {}, np.square),
    "abs": (X, {}, np.abs),
    "reciprocal": (POSITIVE, {}, lambda x: 1 / x),
    "ceil": (X, {}, np.ceil),
    "floor": (X, {}, np.floor),
    "trunc": (X, {}, np.trunc),
    "round": (X, {}, lambda x: np.trunc(x + 0.5 * np.sign(x))),
    "sign": (X, {}, np.sign),
    "sin": (X, {}, np.sin),
    "cos": (X, {}, np.cos),
    "tan": (X, {}, np.tan),
    "asin": (INSIDE, {}, np.arcsin),
    "acos": (INSIDE, {}, np.arccos),
    "atan": (X, {}, np.arctan),
    "sinh": (X, {}, np.sinh),
    "cosh": (X, {}, np.cosh),
    "asinh": (X, {}, np.arcsinh),
    "acosh": (POSITIVE + 1, {}, np.arccosh),
    "atanh": (INSIDE, {}, np.arctanh),
    "erf": (X, {}, erf),
    "erfinv": (INSIDE, {}, None),
    "lgamma": (POSITIVE, {}, lambda x: np.vectorize(math.lgamma)(x)),
    "digamma": (POSITIVE, {}, None),
    "logsigmoid": (X, {}, lambda x: np.log(sigmoid(x))),
    "softsign": (X, {}, lambda x: x / (1 + np.abs(x))),
    "tanh_shrink": (X, {}, lambda x: x - np.tanh(x)),
    "silu": (X, {}, lambda x: x * sigmoid(x)),
    "gelu": (X, {}, lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2)))),
    "leaky_relu": (X, {"alpha": 0.1}, lambda x: np.where(x > 0, x, 0.1 * x)),
    "elu": (X, {"alpha": 0.5}, lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "celu": (X, {"alpha": 0.5}, lambda x: np.where(x > 0, x, 0.5 * np.expm1(x / 0.5))),
    "selu": (
        X,
        {"scale": 1.5, "alpha": 0.7},
        lambda x: 1.5 * np.where(x > 0, x, 0.7 * np.expm1(x)),
    ),
    "relu6": (X, {"threshold": 0.6}, lambda x: x.clip(0, 0.6)),
    "brelu": (X, {"t_min": -0.3, "t_max": 0.6}, lambda x: x.clip(-0.3, 0.6)),
    "soft_relu": (X, {}, lambda x: np.log1p(np.exp(x))),
    "softplus": (X, {"beta": 2.0}, lambda x: np.log1p(np.exp(2 * x)) / 2),
    "softshrink": (X, {"lambda": 0.2}, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.2, 0)),
    "hard_shrink": (X, {"threshold": 0.3}, lambda x: np.where(np.abs(x) > 0.3, x, 0)),
    "hard_sigmoid": (X * 4, {}, lambda x: (0.2 * x + 0.5).clip(0, 1)),
    "hard_swish": (X * 4, {}, lambda x: x * (x + 3).clip(0, 6) / 6),
    "swish": (X, {"beta": 1.5}, lambda x: x * sigmoid(1.5 * x)),
    "mish": (X, {}, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "stanh": (X, {}, lambda x: 1.7159 * np.tanh(0.67 * x)),
    "thresholded_relu": (X, {"threshold": 0.2}, lambda x: np.where(x > 0.2, x, 0)),
    "logit": (POSITIVE / 2, {}, lambda x: np.log(x / (1 - x))),
    "pow": (POSITIVE, {"factor": 2.5}, lambda x: x**2.5),
}


@pytest.mark.parametrize("type", ACTIVATIONS)
def test_activation(type: str) -> None:
    x, attrs, function = ACTIVATIONS[type]
    outputs = None if function is None else {"Out": function(x)}
    check_op(type, {"X": x}, attrs, outputs, rtol=1e-6, grad_rtol=1e-4)


def test_activation_variants() -> None:
    inner = np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)
    check_op("gelu", {"X": X}, {"approximate": True}, {"Out": 0.5 * X * (1 + np.tanh(inner))})
    attrs = {"threshold": 5.0, "scale": 4.0, "offset": 2.0}
    check_op("hard_swish", {"X": X}, attrs, {"Out": X * (X + 2).clip(0, 5) / 4})
    check_op("swish", {"X": X}, {}, {"Out": X * sigmoid(X)})
    factor = {"X": POSITIVE, "FactorTensor": np.array([1.5])}
    check_op("pow", factor, {}, {"Out": POSITIVE**1.5})
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997], "float32")
    check_op("round", {"X": halves}, {}, {"Out": np.array([1, 2, 3, -1, -2, 0], "float32")})


@pytest.mark.parametrize(
    ("mode", "shape"), [("all", (1,)), ("channel", (1, 3, 1, 1)), ("element", (1, 3, 2, 2))]
)
def test_prelu(mode: str, shape: tuple[int, ...]) -> None:
    x, alpha = apart(2, 3, 2, 2), uniform(*shape)
    expected = np.where(x > 0, x, alpha.reshape(shape if len(shape) == 4 else (1, 1, 1, 1)) * x)
    check_op("prelu", {"X": x, "Alpha": alpha}, {"mode": mode}, {"Out": expected})


def test_prelu_channels_last_and_maxout() -> None:
    x, alpha = apart(2, 2, 3), uniform(3)
    attrs = {"mode": "channel", "data_format": "NHWC"}
    check_op("prelu", {"X": x, "Alpha": alpha}, attrs, {"Out": np.where(x > 0, x, alpha * x)})
    x = apart(2, 4, 2, 1)
    expected = x.reshape(2, 2, 2, 2, 1).max(2)
    check_op("maxout", {"X": x}, {"groups": 2, "axis": 1}, {"Out": expected})
    check_op("maxout", {"X": x.transpose(0, 2, 3, 1)}, {"groups": 2, "axis": 3})


COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less_than": np.less,
    "less_equal": np.less_equal,
    "greater_than": np.greater,
    "greater_equal": np.greater_equal,
}


@pytest.mark.parametrize("type", COMPARISONS)
def test_comparison(type: str) -> None:
    x, y = RNG.integers(0, 3, (3, 4)), RNG.integers(0, 3, (3, 4))
    check_op(type, {"X": x, "Y": y}, {}, {"Out": COMPARISONS[type](x, y)})
    expected = COMPARISONS[type](x, y[:, :1])
    check_op(type, {"X": x, "Y": y[:, 0]}, {"axis": 0}, {"Out": expected})


def test_logic_and_bits() -> None:
    a, b = RNG.integers(0, 2, (2, 3)).astype(bool), RNG.integers(0, 2, (2, 3)).astype(bool)
    for word, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        check_op(f"logical_{word}", {"X": a, "Y": b}, {}, {"Out": function(a, b)})
    check_op("logical_not", {"X": a}, {}, {"Out": ~a})
    i, j = RNG.integers(0, 9, (2, 3)), RNG.integers(0, 9, (2, 3))
    for word, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        check_op(f"bitwise_{word}", {"X": i, "Y": j}, {}, {"Out": function(i, j)})
    check_op("bitwise_not", {"X": i}, {}, {"Out": ~i})


def test_closeness() -> None:
    x = uniform(2, 2)
    near = x + np.array([[1e-9, 0], [0, 0.1]])
    close = np.isclose(x, near)
    check_op("isclose", {"Input": x, "Other": near}, {}, {"Out": close})
    check_op("isclose", {"Input": x, "Other": near}, {"rtol": "1e-5", "atol": "1.0"})
    check_op("allclose", {"Input": x, "Other": near}, {}, {"Out": np.array([False])})
    check_op(
        "allclose", {"Input": x, "Other": near, "Atol": np.array([1.0])}, {}, {"Out": [[True]]}
    )
    check_op("equal_all", {"X": x, "Y": x}, {}, {"Out": np.array([True])})
    check_op("equal_reduce", {"X": x, "Y": near}, {}, {"Out": np.array([False])})


REDUCTIONS = {
    "reduce_sum": np.sum,
    "reduce_mean": np.mean,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_amax": np.max,
    "reduce_amin": np.min,
    "frobenius_norm": lambda x, axis, keepdims: np.sqrt((x**2).sum(axis, keepdims=keepdims)),
}


@pytest.mark.parametrize("type", REDUCTIONS)
@pytest.mark.parametrize("keep", [False, True])
def test_reduction(type: str, keep: bool) -> None:
    x = apart(2, 3, 2) + 3.0
    for dim in ([1], [0, 2], [-1]):
        expected = REDUCTIONS[type](x, axis=tuple(dim), keepdims=keep)
        check_op(type, {"X": x}, {"dim": dim, "keep_dim": keep}, {"Out": expected})
    expected = REDUCTIONS[type](x, axis=(0, 1, 2), keepdims=keep)
    check_op(
        type,
        {"X": x},
        {"reduce_all": True, "keep_dim": keep},
        {"Out": expected.reshape((1, 1, 1) if keep else (1,))},
    )


def test_all_equal_elements_get_the_gradient_of_reduce_max() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        block = main.global_block()
        x = block.create_var(name="x", shape=[3], dtype="float64", is_data=True)
        out = block.create_var(name="out")
        block.append_op(
            type="reduce_max", inputs={"X": x}, outputs={"Out": out}, attrs={"reduce_all": True}
        )
        grads = static.gradients([out], [x])
    found = static.Executor().run(main, feed={"x": np.array([2.0, 1.0, 2.0])}, fetch_list=grads)
    np.testing.assert_array_equal(found[0], [1.0, 0.0, 1.0])


def test_logical_reductions() -> None:
    x = RNG.integers(0, 2, (3, 4)).astype(bool)
    check_op("reduce_all", {"X": x}, {"dim": [1]}, {"Out": x.all(1)})
    check_op("reduce_any", {"X": x}, {"reduce_all": True}, {"Out": np.array([x.any()])})


def test_reductions_of_whole_numbers_keep_their_type() -> None:
    x = RNG.integers(0, 9, (3, 4)).astype("int32")
    check_op("reduce_sum", {"X": x}, {"dim": [0]}, {"Out": x.sum(0)})
    check_op("reduce_mean", {"X": x}, {"dim": [0]}, {"Out": x.sum(0) // 3})
    check_op("reduce_sum", {"X": x}, {"dim": [0], "out_dtype": 3}, {"Out": x.sum(0)})
    with pytest.raises(ShapeError, match="not within its 2 dimensions"):
        check_op("reduce_sum", {"X": x}, {"dim": [2]})


def test_sums_of_everything() -> None:
    x = apart(2, 3)
    check_op("mean", {"X": x}, {}, {"Out": [[x.mean()]]})
    check_op("squared_l2_norm", {"X": x}, {}, {"Out": [[(x**2).sum()]]})
    check_op("l1_norm", {"X": x}, {}, {"Out": [[np.abs(x).sum()]]})
    total = np.log(np.exp(x).sum(1))
    check_op("logsumexp", {"X": x}, {"axis": [1]}, {"Out": total})
    check_op("logsumexp", {"X": x}, {"reduce_all": True}, {"Out": [[np.log(np.exp(x).sum())]]})


def test_running_sums() -> None:
    x = apart(3, 4)
    check_op("cumsum", {"X": x}, {}, {"Out": x.cumsum(1)})
    check_op("cumsum", {"X": x}, {"axis": 0, "exclusive": True}, {"Out": x.cumsum(0) - x})
    check_op("cumsum", {"X": x}, {"axis": 0, "reverse": True}, {"Out": x[::-1].cumsum(0)[::-1]})
    check_op("cumsum", {"X": x}, {"flatten": True}, {"Out": x.cumsum()})
    check_op("cumprod", {"X": x}, {"dim": 1}, {"Out": x.cumprod(1)})
    check_op("logcumsumexp", {"X": x}, {}, {"Out": np.log(np.exp(x).cumsum(1))})
    check_op("logcumsumexp", {"X": x}, {"reverse": True, "axis": 0})
    flat = np.log(np.exp(x.ravel()).cumsum())
    check_op("logcumsumexp", {"X": x}, {"flatten": True}, {"Out": flat})


def test_finiteness() -> None:
    x = np.array([1.0, np.inf, np.nan])
    check_op("isfinite", {"X": x}, {}, {"Out": np.array([False])})
    check_op("isinf", {"X": x}, {}, {"Out": np.array([True])})
    check_op("isnan", {"X": x[:2]}, {}, {"Out": np.array([False])})
    check_op("isfinite_v2", {"X": x}, {}, {"Out": np.isfinite(x)})
    check_op("isinf_v2", {"X": x}, {}, {"Out": np.isinf(x)})
    check_op("isnan_v2", {"X": x}, {}, {"Out": np.isnan(x)})
    check_op("is_empty", {"X": x}, {}, {"Out": np.array([False])})
    check_op("is_empty", {"X": np.zeros((0, 2))}, {}, {"Out": np.array([True])})
