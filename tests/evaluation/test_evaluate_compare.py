"""The figures of a comparison against the same in plain NumPy, whole and batch by batch."""

import numpy as np
import pytest

from fleetx.evaluation.comparison import EDGES, Comparison, Tolerance, Tolerances


def compared(expected, actual, *, batch=7, tolerance=None):
    comparison = Comparison(Tolerances(others=tolerance))
    for at in range(0, len(expected), batch):
        rows = slice(at, at + batch)
        ids = [str(i) for i in range(len(expected))[rows]]
        comparison.add(ids, {"y": expected[rows]}, {"y": actual[rows]})
    return comparison


def test_figures_are_those_of_numpy():
    random = np.random.default_rng(0)
    x = random.standard_normal((50, 4, 3)).astype("float32")
    y = x + random.standard_normal(x.shape).astype("float32") * 1e-3
    found = compared(x, y)
    statistics = found.outputs["y"]
    a, b = x.astype("float64").reshape(50, -1), y.astype("float64").reshape(50, -1)
    off = np.abs(a - b)
    scale = np.abs(a).max(axis=1, keepdims=True)
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert statistics.max == off.max()
    assert statistics.mean == pytest.approx(off.mean())
    assert statistics.max_relative == pytest.approx((off / scale).max())
    assert statistics.cosine_min == pytest.approx(cosine.min())
    assert statistics.cosine_mean == pytest.approx(cosine.mean())
    row, place = np.unravel_index(off.argmax(), off.shape)
    assert statistics.max_sample == str(row)
    assert statistics.max_place == np.unravel_index(place, (4, 3))
    assert statistics.differing == (off > 1e-5 + 1e-5 * scale).sum()
    np.testing.assert_array_equal(statistics.place_max, off.max(axis=0))
    np.testing.assert_allclose(statistics.place_sum, (b - a).sum(axis=0))
    wanted, _ = np.histogram(off[off > 0], [0, *EDGES, np.inf])
    np.testing.assert_array_equal(statistics.histogram[1:], wanted)
    correlation, slope, offset = statistics.line()
    assert correlation == pytest.approx(np.corrcoef(a.reshape(-1), b.reshape(-1))[0, 1])
    assert (slope, offset) == pytest.approx(tuple(np.polyfit(a.reshape(-1), b.reshape(-1), 1)))
    assert [each.row for each in found.first] == list(range(10))


def test_numbers_that_are_not_finite():
    x = np.array([[1.0, np.nan, np.inf, 2.0]] * 3)
    y = x.copy()
    assert compared(x, y).same
    y[1, 0], y[2, 2] = np.nan, -np.inf
    found = compared(x, y)
    assert found.differing_rows == 2
    assert found.outputs["y"].not_finite == 2
    assert found.outputs["y"].max == np.inf
    assert [each.place for each in found.first] == [(0,), (2,)]


def test_integers_have_to_be_equal():
    x = np.arange(1000000, 1000020).reshape(10, 2)
    assert compared(x, x).same
    y = x.copy()
    y[3, 1] += 1
    assert compared(x, y).differing_rows == 1
    assert compared(x, y, tolerance=Tolerance(1, 0)).same


def test_small_numbers_beside_large_ones_are_held_to_the_large_ones():
    x = np.array([[1e-6, 100.0]], "float32")
    assert compared(x, x + np.float32([[5e-4, 0]])).same
    assert not compared(x / 100, x / 100 + np.float32([[5e-4, 0]])).same


def test_outputs_are_paired_by_name_else_by_order():
    x, y = np.zeros((2, 3)), np.ones((2, 1))
    pairs = [({"a": x, "b": y}, {"b": y, "a": x}), ({"a": x, "b": y}, {"p": x, "q": y})]
    for expected, actual in pairs:
        comparison = Comparison(Tolerances())
        comparison.add(["0", "1"], expected, actual)
        assert comparison.same
    comparison = Comparison(Tolerances())
    comparison.add(["0", "1"], {"a": x, "b": y}, {"a": x})
    assert comparison.problems == ["the response lacks output 'b'; its outputs are: 'a'."]
    assert not comparison.same


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_tolerances_are_checked(value):
    with pytest.raises(ValueError, match="must be 0 or more"):
        Tolerance(value)
