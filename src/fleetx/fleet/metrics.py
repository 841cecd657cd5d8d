"""Metrics over all workers: each worker counts on its own data, and the counts are all-reduced.

Every function takes numpy arrays, or names or Variables whose values are in a scope, and returns
the same result on all workers. `util` selects the workers; by default those of the session.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from fleetx.fleet.utilities import UtilBase

Array = np.ndarray[Any, np.dtype[Any]]


def sum(input: Any, scope: Any = None, util: UtilBase | None = None) -> Array:
    """Return the elementwise sum over all workers."""
    return _reduced(input, "sum", scope, util)


def max(input: Any, scope: Any = None, util: UtilBase | None = None) -> Array:
    """Return the elementwise maximum over all workers."""
    return _reduced(input, "max", scope, util)


def min(input: Any, scope: Any = None, util: UtilBase | None = None) -> Array:
    """Return the elementwise minimum over all workers."""
    return _reduced(input, "min", scope, util)


def auc(stat_pos: Any, stat_neg: Any, scope: Any = None, util: UtilBase | None = None) -> float:
    """Return the area under the ROC curve from counts per bucket of predictions.

    Args:
        stat_pos: the number of positive samples per bucket, from low to high prediction.
        stat_neg: the same for negative samples.
        scope: where the values of names and Variables are; the global scope by default.
        util: the workers over which to add the counts; by default those of the session.
    """
    # From the highest prediction down, the curve gains height by positives, width by negatives.
    positives = _reduced(stat_pos, "sum", scope, util).astype(np.float64).ravel()[::-1].cumsum()
    negatives = _reduced(stat_neg, "sum", scope, util).astype(np.float64).ravel()[::-1].cumsum()
    if positives.size == 0 or positives[-1] * negatives[-1] == 0:
        return 0.5
    heights = np.concatenate([[0.0], positives])
    widths = np.diff(negatives, prepend=0.0)
    area = np.sum(widths * (heights[:-1] + heights[1:]) / 2)
    return float(area / (positives[-1] * negatives[-1]))


def mae(abserr: Any, total_ins_num: Any, scope: Any = None, util: UtilBase | None = None) -> float:
    """Return the mean absolute error from sums of absolute errors and numbers of samples."""
    return _ratio(abserr, total_ins_num, scope, util)


def mse(sqrerr: Any, total_ins_num: Any, scope: Any = None, util: UtilBase | None = None) -> float:
    """Return the mean squared error from sums of squared errors and numbers of samples."""
    return _ratio(sqrerr, total_ins_num, scope, util)


def rmse(sqrerr: Any, total_ins_num: Any, scope: Any = None, util: UtilBase | None = None) -> float:
    """Return the root of the mean squared error from sums of squared errors and numbers."""
    return math.sqrt(_ratio(sqrerr, total_ins_num, scope, util))


def acc(correct: Any, total: Any, scope: Any = None, util: UtilBase | None = None) -> float:
    """Return the accuracy from the numbers of correct and of all predictions."""
    return _ratio(correct, total, scope, util)


def _ratio(part: Any, whole: Any, scope: Any, util: UtilBase | None) -> float:
    above = _reduced(part, "sum", scope, util).ravel()
    below = _reduced(whole, "sum", scope, util).ravel()
    if below[0] == 0:
        raise ValueError("no worker has counted a sample, so there is no mean.")
    return float(above[0]) / float(below[0])


def _reduced(value: Any, mode: str, scope: Any, util: UtilBase | None) -> Array:
    array = _value(value, scope)
    return np.asarray((util or _session_util()).all_reduce(array, mode)).reshape(array.shape)


def _session_util() -> UtilBase:
    # The session is in the package, which imports this module.
    found: UtilBase = importlib.import_module("fleetx.fleet").util
    return found


def _value(value: Any, scope: Any) -> Array:
    """Return an array: the value itself, or what a scope holds under a name."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str):
        return np.asarray(value)
    from fleetx.static.run.scope import global_scope

    found = (global_scope() if scope is None else scope).find_var(name)
    if found is None:
        raise ValueError(f"the scope has no variable {name!r}; give the scope it was computed in.")
    return np.asarray(found.get_tensor())
