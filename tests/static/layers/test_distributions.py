"""Distributions against their formulas and the statistics of their samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers as L

LOC = np.array([0.5, -1.0, 2.0], "float32")
SCALE = np.array([0.5, 1.5, 1.0], "float32")
LOGITS = np.array([[0.1, 1.0, -2.0], [2.0, 0.0, 0.5]], "float32")
OTHER = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]], "float32")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        static.unique_name.guard(),
    ):
        yield


def run(*outs: Any, **feed: np.ndarray) -> list[np.ndarray]:
    return static.Executor().run(static.default_main_program(), feed=feed, fetch_list=list(outs))


def test_normal() -> None:
    first, second = L.Normal(LOC, SCALE), L.Normal([0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
    value = static.data("v", [3])
    found = run(
        first.entropy(), first.log_prob(value), first.kl_divergence(second), v=np.ones(3, "float32")
    )
    np.testing.assert_allclose(found[0], 0.5 + 0.5 * np.log(2 * np.pi) + np.log(SCALE), rtol=1e-5)
    density = np.exp(-((1 - LOC) ** 2) / (2 * SCALE**2)) / (SCALE * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(found[1], np.log(density), rtol=1e-5)
    sigma = np.array([1.0, 2.0, 3.0])
    divergence = np.log(sigma / SCALE) + (SCALE**2 + LOC**2) / (2 * sigma**2) - 0.5
    np.testing.assert_allclose(found[2], divergence, rtol=1e-5)


def test_samples() -> None:
    normal, uniform = L.Normal(LOC, SCALE).sample([4000]), L.Uniform(LOC, LOC + 1).sample([4000])
    single, repeated = L.Normal(1.0, 2.0).sample([5, 2]), L.Uniform(0.0, 1.0).sample([6], seed=9)
    drawn = run(normal, uniform, single, repeated)
    assert drawn[0].shape == (4000, 3)
    np.testing.assert_allclose(drawn[0].mean(0), LOC, atol=0.1)
    np.testing.assert_allclose(drawn[0].std(0), SCALE, atol=0.1)
    assert (drawn[1] >= LOC).all()
    assert (drawn[1] <= LOC + 1).all()
    assert drawn[2].shape == (5, 2)
    np.testing.assert_array_equal(drawn[3], run(repeated)[0])


def test_variables_with_an_unknown_batch() -> None:
    loc, scale = static.data("loc", [None, 3]), static.data("scale", [None, 3])
    distribution = L.Normal(loc, scale)
    drawn, entropy = run(
        distribution.sample([7]),
        distribution.entropy(),
        loc=np.zeros((4, 3), "float32"),
        scale=np.ones((4, 3), "float32"),
    )
    assert drawn.shape == (7, 4, 3)
    np.testing.assert_allclose(entropy, 0.5 + 0.5 * math.log(2 * math.pi), rtol=1e-6)


def test_uniform() -> None:
    distribution = L.Uniform(0.0, 2.0)
    value = static.data("v", [3])
    entropy, density = run(
        distribution.entropy(),
        distribution.log_prob(value),
        v=np.array([1.0, 0.5, 3.0], "float32"),
    )
    np.testing.assert_allclose(entropy, [math.log(2.0)], rtol=1e-6)
    np.testing.assert_allclose(density, [-math.log(2.0), -math.log(2.0), -np.inf], rtol=1e-6)


def test_categorical() -> None:
    first, second = L.Categorical(LOGITS), L.Categorical(static.data("o", [2, 3]))
    entropy, divergence = run(first.entropy(), first.kl_divergence(second), o=OTHER)
    p, q = (np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in (LOGITS, OTHER))
    np.testing.assert_allclose(entropy, -(p * np.log(p)).sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(divergence, (p * np.log(p / q)).sum(1, keepdims=True), rtol=1e-5)


def test_multivariate_normal() -> None:
    a = L.MultivariateNormalDiag(np.array([0.3, 0.5], "float32"), [[0.4, 0.0], [0.0, 0.5]])
    b = L.MultivariateNormalDiag(np.array([0.2, 0.4], "float32"), [[0.3, 0.0], [0.0, 0.4]])
    entropy, divergence = run(a.entropy(), a.kl_divergence(b))
    # As Paddle 1.8.5 computes them.
    np.testing.assert_allclose(entropy, [2.033158], rtol=1e-5)
    np.testing.assert_allclose(divergence, [0.06542051], rtol=1e-5)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="must all be Variables, or none"):
        L.Normal(static.data("x", [2]), 1.0)
    with pytest.raises(TypeError, match="low"):
        L.Uniform("0", 1.0)
    with pytest.raises(TypeError, match="other"):
        L.Normal(0.0, 1.0).kl_divergence(L.Uniform(0.0, 1.0))
    with pytest.raises(NotImplementedError, match="Categorical cannot be sampled"):
        L.Categorical(LOGITS).sample([1])
