"""Recurrent ops over sequences: values against loops in NumPy, gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest
from op_check import check_op
from sequence_cases import LENGTHS, rows, split


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("peepholes", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_lstm(peepholes: bool, reverse: bool) -> None:
    size = 2
    x, weight, bias = rows(6, 8), rows(2, 8), rows(1, 14 if peepholes else 8)
    h0, c0 = rows(3, 2), rows(3, 2)
    peep = np.split(bias[0, 8:], 3) if peepholes else [np.zeros(size)] * 3
    hidden, cell = [], []
    for n, s in enumerate(split(x, LENGTHS)):
        h, c, hs, cs = h0[n], c0[n], [], []
        for row in s[::-1] if reverse else s:
            g, i, f, o = np.split(row + bias[0, :8] + h @ weight, 4)
            c = np.tanh(g) * sigmoid(i + peep[0] * c) + c * sigmoid(f + peep[1] * c)
            h = sigmoid(o + peep[2] * c) * np.tanh(c)
            hs.append(h)
            cs.append(c)
        hidden += hs[::-1] if reverse else hs
        cell += cs[::-1] if reverse else cs
    check_op(
        "lstm",
        {"Input": (x, [LENGTHS]), "H0": h0, "C0": c0, "Weight": weight, "Bias": bias},
        {"use_peepholes": peepholes, "is_reverse": reverse},
        {"Hidden": np.stack(hidden), "Cell": np.stack(cell)},
    )


def test_lstmp() -> None:
    x, weight, projection, bias = rows(6, 8), rows(3, 8), rows(2, 3), rows(1, 14)
    peep = np.split(bias[0, 8:], 3)
    states = []
    for s in split(x, LENGTHS):
        r, c = np.zeros(3), np.zeros(2)
        for row in s:
            g, i, f, o = np.split(row + bias[0, :8] + r @ weight, 4)
            c = np.tanh(g) * sigmoid(i + peep[0] * c) + c * sigmoid(f + peep[1] * c)
            c = np.clip(c, -0.25, 0.25)
            r = np.tanh(sigmoid(o + peep[2] * c) * np.tanh(c) @ projection)
            r = np.clip(r, -0.06, 0.06)
            states.append(r)
    check_op(
        "lstmp",
        {"Input": (x, [LENGTHS]), "Weight": weight, "ProjWeight": projection, "Bias": bias},
        {"cell_clip": 0.25, "proj_clip": 0.06},
        {"Projection": np.stack(states)},
    )


def gru_step(
    x: np.ndarray, h: np.ndarray, weight: np.ndarray, origin: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = h.shape[-1]
    flat = weight.reshape(-1)
    gates, candidate = flat[: 2 * size**2].reshape(size, -1), flat[2 * size**2 :].reshape(size, -1)
    ur = sigmoid(x[..., : 2 * size] + h @ gates)
    u, r = np.split(ur, 2, -1)
    c = np.tanh(x[..., 2 * size :] + (r * h) @ candidate)
    new = u * h + (1 - u) * c if origin else (1 - u) * h + u * c
    return np.concatenate([ur, c], -1), r * h, new


@pytest.mark.parametrize("origin", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_gru(origin: bool, reverse: bool) -> None:
    x, weight, bias, h0 = rows(6, 6), rows(2, 6), rows(1, 6), rows(3, 2)
    hidden = []
    for n, s in enumerate(split(x, LENGTHS)):
        h, hs = h0[n], []
        for row in s[::-1] if reverse else s:
            _, _, h = gru_step(row + bias[0], h, weight, origin)
            hs.append(h)
        hidden += hs[::-1] if reverse else hs
    check_op(
        "gru",
        {"Input": (x, [LENGTHS]), "H0": h0, "Weight": weight, "Bias": bias},
        {"is_reverse": reverse, "origin_mode": origin},
        {"Hidden": np.stack(hidden)},
    )


def test_single_steps() -> None:
    x, h, weight, bias = rows(3, 6), rows(3, 2), rows(2, 6), rows(1, 6)
    gate, reset, new = gru_step(x + bias, h, weight, False)
    check_op(
        "gru_unit",
        {"Input": x, "HiddenPrev": h, "Weight": weight, "Bias": bias},
        outputs={"Gate": gate, "ResetHiddenPrev": reset, "Hidden": new},
    )
    x, cell = rows(3, 8), rows(3, 2)
    i, f, o, j = np.split(x, 4, 1)
    c = sigmoid(f + 0.5) * cell + sigmoid(i) * np.tanh(j)
    check_op(
        "lstm_unit",
        {"X": x, "C_prev": cell},
        {"forget_bias": 0.5},
        {"C": c, "H": sigmoid(o) * np.tanh(c)},
    )
