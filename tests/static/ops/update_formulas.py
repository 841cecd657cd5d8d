"""The formulas of update ops, written out in NumPy (float64), and the cases that use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fleetx.static.graph.op_registry import get_op

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
