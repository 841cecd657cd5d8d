"""Update ops for five steps against the formulas written out in NumPy (float64)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fleetx import static
from fleetx.static.graph.op_registry import get_op
from fleetx.static.shapes.infer_shape import ShapeError

State = dict[str, Any]
LR, EPS = 0.05, 0.1  # a large epsilon shows where it is added
STEPS = 5


def sgd(s: State, g: Any) -> None:
    s["Param"] -= LR * g


def momentum(
    s: State, g: Any, mu: float = 0.9, nesterov: bool = False, l2: float = 0.0, scale: float = 1.0
) -> None:
    g = g * scale + l2 * s["Param"]
    s["Velocity"] = mu * s["Velocity"] + g
    s["Param"] -= LR * (g + mu * s["Velocity"] if nesterov else s["Velocity"])


def lars(s: State, g: Any, decay: float, eps: float | None = None, scale: float = 1.0) -> None:
    g = g * scale
    rate = LR
    if decay > 0 or eps is None:
        p_norm, g_norm = np.linalg.norm(s["Param"]), np.linalg.norm(g)
        rate = LR * 0.3 * p_norm / (g_norm + decay * p_norm + (eps or 0.0))
    s["Velocity"] = 0.9 * s["Velocity"] + rate * (g + decay * s["Param"])
    s["Param"] -= s["Velocity"]


def adam(
    s: State, g: Any, scaled_eps: bool = False, decay: float = 0.0, ratio: float = 1.0
) -> None:
    lr = LR * ratio
    s["Param"] *= 1 - lr * decay
    s["Moment1"] = 0.8 * s["Moment1"] + 0.2 * g
    s["Moment2"] = 0.9 * s["Moment2"] + 0.1 * g * g
    root = np.sqrt(1 - s["Beta2Pow"])
    step = lr * root / (1 - s["Beta1Pow"])
    eps = EPS * root if scaled_eps else EPS
    s["Param"] -= step * s["Moment1"] / (np.sqrt(s["Moment2"]) + eps)
    s["Beta1Pow"] *= 0.8
    s["Beta2Pow"] *= 0.9


def adamax(s: State, g: Any) -> None:
    s["Moment"] = 0.8 * s["Moment"] + 0.2 * g
    s["InfNorm"] = np.maximum(np.abs(g), 0.9 * s["InfNorm"] + EPS)
    s["Param"] -= LR / (1 - s["Beta1Pow"]) * s["Moment"] / s["InfNorm"]


def lamb(s: State, g: Any, decay: float, adapt: bool | None = None) -> None:
    s["Moment1"] = 0.8 * s["Moment1"] + 0.2 * g
    s["Moment2"] = 0.9 * s["Moment2"] + 0.1 * g * g
    mean, square = s["Moment1"], s["Moment2"]
    if adapt is not None:
        mean, square = mean / (1 - s["Beta1Pow"]), square / (1 - s["Beta2Pow"])
        s["Beta1Pow"] *= 0.8
        s["Beta2Pow"] *= 0.9
    r = mean / (np.sqrt(square) + EPS) + decay * s["Param"]
    ratio = np.linalg.norm(s["Param"]) / np.linalg.norm(r)
    if adapt is False and decay == 0:
        ratio = 1.0
    s["Param"] -= LR * ratio * r


def adagrad(s: State, g: Any) -> None:
    s["Moment"] += g * g
    s["Param"] -= LR * g / (np.sqrt(s["Moment"]) + EPS)


def decayed_adagrad(s: State, g: Any) -> None:
    s["Moment"] = 0.9 * s["Moment"] + 0.1 * g * g
    s["Param"] -= LR * g / (np.sqrt(s["Moment"]) + EPS)


def rmsprop(s: State, g: Any, centered: bool) -> None:
    s["MeanSquare"] = 0.9 * s["MeanSquare"] + 0.1 * g * g
    square = s["MeanSquare"]
    if centered:
        s["MeanGrad"] = 0.9 * s["MeanGrad"] + 0.1 * g
        square = square - s["MeanGrad"] ** 2
    s["Moment"] = 0.3 * s["Moment"] + LR * g / np.sqrt(square + EPS)
    s["Param"] -= s["Moment"]


def adadelta(s: State, g: Any, rate: float = 1.0) -> None:
    s["AvgSquaredGrad"] = 0.9 * s["AvgSquaredGrad"] + 0.1 * g * g
    step = np.sqrt((s["AvgSquaredUpdate"] + EPS) / (s["AvgSquaredGrad"] + EPS)) * g
    s["AvgSquaredUpdate"] = 0.9 * s["AvgSquaredUpdate"] + 0.1 * step * step
    s["Param"] -= rate * step


def ftrl(s: State, g: Any, power: float) -> None:
    new = s["SquaredAccumulator"] + g * g
    grown = (new**-power - s["SquaredAccumulator"] ** -power) / LR
    s["LinearAccumulator"] += g - grown * s["Param"]
    linear = s["LinearAccumulator"]
    value = (0.1 * np.sign(linear) - linear) / (new**-power / LR + 2 * 0.2)
    s["Param"] = np.where(np.abs(linear) > 0.1, value, 0.0)
    s["SquaredAccumulator"] = new


def proximal(s: State, step: Any) -> None:
    value = s["Param"] - step
    size = np.maximum(np.abs(value) - LR * 0.3, 0)
    s["Param"] = np.sign(value) * size / (1 + LR * 0.2)


def proximal_adagrad(s: State, g: Any) -> None:
    s["Moment"] += g * g
    proximal(s, LR * g / np.sqrt(s["Moment"]))


def dpsgd(s: State, g: Any) -> None:
    s["Param"] -= LR * g / max(np.linalg.norm(g) / 1.0, 1.0)


BETAS = {"beta1": 0.8, "beta2": 0.9, "epsilon": EPS}
ADAM = {"Moment1": 0.0, "Moment2": 0.0, "Beta1Pow": [0.8], "Beta2Pow": [0.9]}
RMS = {"MeanSquare": 0.0, "MeanGrad": 0.0, "Moment": 0.0}
DELTA = {"AvgSquaredGrad": 0.0, "AvgSquaredUpdate": 0.0}
FTRL = {"SquaredAccumulator": 0.1, "LinearAccumulator": 0.0}
RATE = {"LearningRate": [LR]}
L2 = {"regularization_method": "l2_decay", "regularization_coeff": 0.1}
PROX = {"l1": 0.3, "l2": 0.2}

CASES: list[tuple[str, str, State, State, Callable[[State, Any], None]]] = [
    ("sgd", "sgd", RATE, {}, sgd),
    ("momentum", "momentum", {"Velocity": 0.0, **RATE}, {"mu": 0.9}, momentum),
    (
        "nesterov",
        "momentum",
        {"Velocity": 0.0, **RATE},
        {"mu": 0.9, "use_nesterov": True},
        lambda s, g: momentum(s, g, nesterov=True),
    ),
    (
        "momentum with decay",
        "momentum",
        {"Velocity": 0.0, **RATE},
        {"mu": 0.9, **L2},
        lambda s, g: momentum(s, g, l2=0.1),
    ),
    (
        "momentum rescaled",
        "momentum",
        {"Velocity": 0.0, **RATE},
        {"mu": 0.9, "use_nesterov": True, "rescale_grad": 0.5, **L2},
        lambda s, g: momentum(s, g, nesterov=True, l2=0.1, scale=0.5),
    ),
    (
        "lars",
        "lars_momentum",
        {"Velocity": 0.0, **RATE},
        {"mu": 0.9, "lars_coeff": 0.3, "lars_weight_decay": 0.1},
        lambda s, g: lars(s, g, 0.1),
    ),
    (
        "lars without decay",
        "lars_momentum",
        {"Velocity": 0.0, **RATE},
        {"mu": 0.9, "lars_coeff": 0.3, "lars_weight_decay": 0.0},
        lambda s, g: lars(s, g, 0.0),
    ),
    (
        "lars 2.x without decay",
        "lars_momentum",
        {"Velocity": 0.0, **RATE},
        {"mu": 0.9, "lars_coeff": 0.3, "lars_weight_decay": [0.0], "epsilon": 0.05},
        lambda s, g: lars(s, g, 0.0, 0.05),
    ),
    (
        "lars 2.x",
        "lars_momentum",
        {"Velocity": 0.0, **RATE},
        {
            "mu": 0.9,
            "lars_coeff": 0.3,
            "lars_weight_decay": [0.1],
            "epsilon": 0.05,
            "rescale_grad": 0.5,
        },
        lambda s, g: lars(s, g, 0.1, 0.05, 0.5),
    ),
    ("adam", "adam", {**ADAM, **RATE}, BETAS, adam),
    (
        "adam with beta tensors",
        "adam",
        {**ADAM, **RATE, "Beta1Tensor": [0.8], "Beta2Tensor": [0.9]},
        {"epsilon": EPS},
        adam,
    ),
    (
        "adam 2.x",
        "adam",
        {**ADAM, **RATE},
        {**BETAS, "use_global_beta_pow": False},
        lambda s, g: adam(s, g, scaled_eps=True),
    ),
    (
        "adamw",
        "adamw",
        {**ADAM, **RATE},
        {**BETAS, "coeff": 0.2, "with_decay": True, "lr_ratio": 0.5},
        lambda s, g: adam(s, g, scaled_eps=True, decay=0.2, ratio=0.5),
    ),
    (
        "adamw without decay",
        "adamw",
        {**ADAM, **RATE},
        {**BETAS, "coeff": 0.2, "with_decay": False},
        lambda s, g: adam(s, g, scaled_eps=True),
    ),
    (
        "adamax",
        "adamax",
        {"Moment": 0.0, "InfNorm": 0.0, "Beta1Pow": [0.8], **RATE},
        BETAS,
        adamax,
    ),
    (
        "lamb",
        "lamb",
        {**ADAM, **RATE},
        {**BETAS, "weight_decay": 0.1},
        lambda s, g: lamb(s, g, 0.1),
    ),
    (
        "lamb 2.x",
        "lamb",
        {**ADAM, **RATE},
        {**BETAS, "weight_decay": 0.1, "always_adapt": False},
        lambda s, g: lamb(s, g, 0.1, adapt=False),
    ),
    (
        "lamb 2.x without decay",
        "lamb",
        {**ADAM, **RATE},
        {**BETAS, "weight_decay": 0.0, "always_adapt": False},
        lambda s, g: lamb(s, g, 0.0, adapt=False),
    ),
    (
        "lamb 2.x always",
        "lamb",
        {**ADAM, **RATE},
        {**BETAS, "weight_decay": 0.0, "always_adapt": True},
        lambda s, g: lamb(s, g, 0.0, adapt=True),
    ),
    ("adagrad", "adagrad", {"Moment": 0.0, **RATE}, {"epsilon": EPS}, adagrad),
    (
        "decayed adagrad",
        "decayed_adagrad",
        {"Moment": 0.0, **RATE},
        {"epsilon": EPS, "decay": 0.9},
        decayed_adagrad,
    ),
    (
        "rmsprop",
        "rmsprop",
        {**RMS, **RATE},
        {"epsilon": EPS, "decay": 0.9, "momentum": 0.3},
        lambda s, g: rmsprop(s, g, False),
    ),
    (
        "rmsprop centered",
        "rmsprop",
        {**RMS, **RATE},
        {"epsilon": EPS, "decay": 0.9, "momentum": 0.3, "centered": True},
        lambda s, g: rmsprop(s, g, True),
    ),
    ("adadelta", "adadelta", DELTA, {"rho": 0.9, "epsilon": EPS}, adadelta),
    (
        "adadelta 2.x",
        "adadelta",
        {**DELTA, **RATE},
        {"rho": 0.9, "epsilon": EPS},
        lambda s, g: adadelta(s, g, LR),
    ),
    (
        "ftrl",
        "ftrl",
        {**FTRL, **RATE},
        {"l1": 0.1, "l2": 0.2},
        lambda s, g: ftrl(s, g, -0.5),
    ),
    (
        "ftrl of another power",
        "ftrl",
        {**FTRL, **RATE},
        {"l1": 0.1, "l2": 0.2, "lr_power": -0.3},
        lambda s, g: ftrl(s, g, -0.3),
    ),
    ("proximal_gd", "proximal_gd", RATE, PROX, lambda s, g: proximal(s, LR * g)),
    ("proximal_adagrad", "proximal_adagrad", {"Moment": 0.1, **RATE}, PROX, proximal_adagrad),
    (
        "dpsgd without noise",
        "dpsgd",
        RATE,
        {"clip": 1.0, "batch_size": 4.0, "sigma": 0.0},
        dpsgd,
    ),
]
BY_NAME = {case[0]: case[1:] for case in CASES}
FUSED = [case[0] for case in CASES if get_op(case[1]).fused is not None]


def start(state: State, seed: int, shape: tuple[int, ...] = (4, 3)) -> State:
    """Return float64 arrays for a parameter and its state."""
    values = {"Param": np.random.default_rng(seed).standard_normal(shape)}
    for slot, value in state.items():
        values[slot] = np.array(value) if isinstance(value, list) else np.full(shape, float(value))
    return values


def gradients(seed: int, shape: tuple[int, ...] = (4, 3)) -> list[Any]:
    rng = np.random.default_rng(seed + 100)
    return [rng.standard_normal(shape) for _ in range(STEPS)]


def tensors(values: State) -> dict[str, torch.Tensor]:
    return {slot: torch.tensor(value, dtype=torch.float64) for slot, value in values.items()}


def attributes(op_type: str, attrs: State) -> State:
    op_def = get_op(op_type)
    full = {**{k: a.default for k, a in op_def.attrs.items()}, **attrs}
    return {k: v for k, v in full.items() if k in op_def.names}


def arguments(op_type: str, held: dict[str, torch.Tensor], grad: torch.Tensor) -> tuple[Any, ...]:
    return tuple(grad if s.name == "Grad" else held.get(s.name) for s in get_op(op_type).inputs)


def assert_same(held: dict[str, torch.Tensor], expected: State) -> None:
    for slot, value in expected.items():
        np.testing.assert_allclose(held[slot].numpy(), value, rtol=1e-6, atol=1e-7, err_msg=slot)


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("name", BY_NAME)
def test_follows_its_formula(name: str, layout: str) -> None:
    op_type, state, attrs, reference = BY_NAME[name]
    expected = start(state, 0)
    held = tensors(expected)
    bound = attributes(op_type, attrs)
    for grad in gradients(0):
        tensor = torch.tensor(grad)
        if layout == "transposed":  # same values, other strides: the fused kernels cannot take it
            tensor = tensor.t().contiguous().t()
        get_op(op_type).fn(*arguments(op_type, held, tensor), **bound)
        reference(expected, grad)
    assert_same(held, expected)


@pytest.mark.parametrize("name", FUSED)
def test_fused_call_updates_each_as_alone(name: str) -> None:
    op_type, state, attrs, reference = BY_NAME[name]
    shapes = [(4, 3), (7,), (2, 2, 2)]
    expected = [start(state, i, shape) for i, shape in enumerate(shapes)]
    held = [tensors(values) for values in expected]
    rate = held[0].get("LearningRate")
    fused = get_op(op_type).fused
    assert fused is not None
    for step in range(STEPS):
        grads = [gradients(i, shape)[step] for i, shape in enumerate(shapes)]
        rows = []
        for own, grad in zip(held, grads, strict=True):
            own["LearningRate"] = rate  # one tensor for all, as the lowering passes it
            rows.append(arguments(op_type, own, torch.tensor(grad)))
        results = fused(tuple(rows), **attributes(op_type, attrs))
        assert [r if isinstance(r, torch.Tensor) else r[0] for r in results] == [r[0] for r in rows]
        for values, grad in zip(expected, grads, strict=True):
            reference(values, grad)
    for own, values in zip(held, expected, strict=True):
        assert_same(own, values)


def test_fused_call_with_different_rates_and_powers() -> None:
    op_def = get_op("adam")
    attrs = attributes("adam", BETAS)
    alone = [tensors(start({**ADAM, **RATE}, i)) for i in range(3)]
    alone[1]["LearningRate"] = torch.tensor([0.5], dtype=torch.float64)
    alone[2]["Beta1Pow"] = torch.tensor([0.5], dtype=torch.float64)
    together = [{k: v.clone() for k, v in s.items()} for s in alone]
    grads = [torch.tensor(gradients(i)[0]) for i in range(3)]
    assert op_def.fused is not None
    op_def.fused([arguments("adam", s, g) for s, g in zip(together, grads, strict=True)], **attrs)
    for own, grad in zip(alone, grads, strict=True):
        op_def.fn(*arguments("adam", own, grad), **attrs)
    for own, other in zip(alone, together, strict=True):
        assert_same(other, {k: v.numpy() for k, v in own.items()})


def test_rate_of_zero_changes_nothing() -> None:
    held = tensors(start({**ADAM, "LearningRate": [0.0]}, 0))
    before = held["Param"].clone()
    attrs = attributes("adamw", {**BETAS, "coeff": 0.2, "with_decay": True})
    get_op("adamw").fn(*arguments("adamw", held, torch.ones(4, 3, dtype=torch.float64)), **attrs)
    assert torch.equal(held["Param"], before)


def test_noise_of_dpsgd_has_its_deviation_and_follows_the_seed() -> None:
    def step(seed: int) -> torch.Tensor:
        param = torch.zeros(20000)
        attrs = {"clip": 1.0, "batch_size": 4.0, "sigma": 2.0, "seed": seed}
        return get_op("dpsgd").fn(param, torch.zeros(20000), torch.ones(1), **attrs)

    assert step(3).std().item() == pytest.approx(0.5, rel=0.03)
    assert torch.equal(step(3), step(3))
    assert not torch.equal(step(0), step(0))


def test_centered_rmsprop_needs_the_mean() -> None:
    held = tensors(start({**RMS, **RATE}, 0))
    del held["MeanGrad"]
    attrs = attributes("rmsprop", {"centered": True})
    with pytest.raises(ValueError, match="MeanGrad"):
        get_op("rmsprop").fn(*arguments("rmsprop", held, torch.ones(4, 3)), **attrs)


def test_gradient_of_another_shape_is_refused() -> None:
    block = static.Program().global_block()
    for name, shape in (("p", [2, 3]), ("g", [3, 2]), ("lr", [1])):
        block.create_var(name=name, shape=shape, dtype="float32", persistable=True)
    with pytest.raises(ShapeError, match=r"'p' of shape \(2, 3\).*'g' of shape \(3, 2\)"):
        block.append_op(
            type="sgd",
            inputs={"Param": "p", "Grad": "g", "LearningRate": "lr"},
            outputs={"ParamOut": "p"},
        )


def test_output_under_a_name_of_its_own_gets_shape_and_type() -> None:
    block = static.Program().global_block()
    for name, shape in (("p", [2, 3]), ("g", [2, 3]), ("lr", [1])):
        block.create_var(name=name, shape=shape, dtype="float64", persistable=True)
    out = block.create_var(name="out")
    block.append_op(
        type="sgd",
        inputs={"Param": "p", "Grad": "g", "LearningRate": "lr"},
        outputs={"ParamOut": "out"},
    )
    assert (out.shape, out.dtype) == ((2, 3), static.VarType.FP64)


# -- averages and loss scaling ---------------------------------------------------------------------
def test_average_accumulates_closes_its_windows() -> None:
    attrs = {"average_window": 0.5, "min_average_window": 2, "max_average_window": 4}
    state = [torch.zeros(2), torch.zeros(2), torch.zeros(2)]
    state += [torch.zeros(1, dtype=torch.int64) for _ in range(3)]
    seen = []
    for step in range(1, 10):
        get_op("average_accumulates").fn(torch.full((2,), float(step)), *state, **attrs)
        seen.append((state[0][0].item(), state[2][0].item(), state[3].item(), state[4].item()))
    # (running sum, sum of the closed window, its growing count, count of the closed window)
    assert seen == [
        (1, 0, 1, 0),
        (0, 3, 0, 2),
        (3, 3, 1, 2),
        (0, 7, 0, 2),
        (5, 7, 1, 2),
        (11, 7, 2, 2),
        (0, 18, 0, 3),
        (8, 18, 1, 3),
        (17, 18, 2, 3),
    ]


def test_unscale_divides_and_reports_infinities() -> None:
    grads = [torch.tensor([2.0, 4.0]), torch.tensor([[8.0]])]
    out, found = get_op("check_finite_and_unscale").fn(grads, torch.tensor([4.0]))
    assert [g.tolist() for g in out] == [[0.5, 1.0], [[2.0]]]
    assert found.tolist() == [False]
    grads[1].fill_(float("inf"))
    assert get_op("check_finite_and_unscale").fn(grads, torch.tensor([4.0]))[1].tolist() == [True]
    grads[1].fill_(float("nan"))
    assert get_op("check_finite_and_unscale").fn(grads, torch.tensor([4.0]))[1].tolist() == [True]


def test_loss_scale_follows_good_and_bad_steps() -> None:
    attrs = {
        "incr_every_n_steps": 3,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.25,
        "stop_update": False,
    }
    scale = torch.tensor([8.0])
    good, bad = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    seen = []
    for overflow in (0, 0, 0, 1, 0, 1, 1, 1, 1):
        grads = [torch.ones(2)]
        get_op("update_loss_scaling").fn(
            grads, torch.tensor([bool(overflow)]), scale, good, bad, **attrs
        )
        assert grads[0].tolist() == ([0.0, 0.0] if overflow else [1.0, 1.0])
        seen.append((scale.item(), good.item(), bad.item()))
    assert seen == [
        (8, 1, 0),
        (8, 2, 0),
        (16, 0, 0),
        (16, 0, 1),
        (16, 1, 0),
        (16, 0, 1),
        (4, 0, 0),
        (4, 0, 1),
        (1, 0, 0),
    ]


def test_loss_scale_never_becomes_infinite() -> None:
    attrs = {
        "incr_every_n_steps": 1,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.5,
        "stop_update": False,
    }
    scale = torch.tensor([3e38])
    counts = [torch.zeros(1, dtype=torch.int32) for _ in range(2)]
    get_op("update_loss_scaling").fn(
        [torch.ones(1)], torch.tensor([False]), scale, *counts, **attrs
    )
    assert scale.item() == torch.tensor(3e38).item()
