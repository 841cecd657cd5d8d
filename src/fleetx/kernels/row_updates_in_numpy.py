"""The fallback of the compiled updates of rows (`_row_updates.h`), on whole records.

A record is a parameter's row followed by its state. Each formula has the same operations in the
same order as there, so that all results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fleetx.kernels.buffers import Array


def _adagrad(records: Array, grads: Array, settings: Array) -> Array:
    kind = grads.dtype.type
    rate, epsilon = kind(settings[0]), kind(settings[1])
    param, moment = np.split(records, 2, axis=1)
    moment = moment + grads * grads
    return np.hstack([param - grads / (np.sqrt(moment) + epsilon) * rate, moment])


def _shares_powers(settings: Array) -> bool:
    return not np.isnan(settings[5])


def _adam(records: Array, grads: Array, settings: Array) -> Array:
    kind, columns = grads.dtype.type, grads.shape[1]
    rate, beta1, beta2, epsilon = (kind(each) for each in settings[:4])
    rest1, rest2 = kind(1.0 - settings[1]), kind(1.0 - settings[2])
    param, first, second, powers = np.split(records, [columns, 2 * columns, 3 * columns], axis=1)
    given = np.array([settings[5:7]], kind) if _shares_powers(settings) else powers
    root = np.sqrt(kind(1) - given[:, 1:])
    step = rate * root / (kind(1) - given[:, :1])
    if settings[4] != 0.0:
        epsilon = root * epsilon
    first = first * beta1 + grads * rest1
    second = second * beta2 + grads * grads * rest2
    param = param - first / (np.sqrt(second) + epsilon) * step
    return np.hstack(
        [param, first, second, powers * np.array([[beta1, beta2]])[:, : len(powers.T)]]
    )


def _ftrl(records: Array, grads: Array, settings: Array) -> Array:
    kind = grads.dtype.type
    rate, l1, twice = kind(settings[0]), kind(settings[1]), kind(2.0 * settings[2])
    param, squared, linear = np.split(records, 3, axis=1)
    before = np.sqrt(squared)
    squared = squared + grads * grads
    after = np.sqrt(squared)
    linear = linear + grads - (after - before) / rate * param
    pull = np.where(linear > 0, l1, -l1) - linear
    value = pull / (after / rate + twice)
    return np.hstack([np.where(np.abs(linear) > l1, value, kind(0)), squared, linear])


ROW_UPDATES: dict[
    str, tuple[Callable[[Array, Array, Array], Array], int, Callable[[int, Array], int]]
] = {
    "adagrad": (_adagrad, 2, lambda columns, _: 2 * columns),
    "adam": (_adam, 7, lambda columns, given: 3 * columns + (0 if _shares_powers(given) else 2)),
    "ftrl": (_ftrl, 3, lambda columns, _: 3 * columns),
}
"""The formula of a rule, the number of its settings, and the numbers of a record."""
