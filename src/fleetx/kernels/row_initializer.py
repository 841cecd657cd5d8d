"""Initial values of rows and blocks, which depend only on seed, id and column.

So an id has the same initial row on any number of servers, in any order of requests, and again
after eviction. The random bits are a hash; normal values are their image under the inverse of the
normal distribution. For a block of a dense parameter, the ids are positions in the flat parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fleetx.kernels import native
from fleetx.kernels.index import check_ids

INITIALIZERS: dict[str, dict[str, float]] = {
    "zeros": {},
    "constant": {"value": 0.0},
    "uniform": {"low": -1.0, "high": 1.0},
    "normal": {"mean": 0.0, "std": 1.0},
    "truncated_normal": {"mean": 0.0, "std": 1.0},
    "xavier": {"fan_in": 0.0, "fan_out": 0.0, "normal": 0.0},
}
"""The kinds of initializers, and their settings with defaults."""

# Random numbers are generated in pieces of about this many, which fit into the CPU caches.
_PIECE = 1 << 16
# Paddle truncates a normal distribution at two standard deviations.
_TAIL = 0.5 * math.erfc(2.0 / math.sqrt(2.0))

Fill = Callable[[Tensor], Tensor]


def full_settings(kind: str, settings: Mapping[str, float]) -> dict[str, float]:
    """Return all settings of an initializer with defaults; raise ValueError if one is invalid."""
    if kind not in INITIALIZERS:
        raise ValueError(f"initializer {kind!r} is not known: use {', '.join(INITIALIZERS)}.")
    for name, value in settings.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name not in INITIALIZERS[kind] or not is_number or not math.isfinite(value):
            raise ValueError(f"initializer {kind!r} cannot have {name}={value!r}.")
    full = {**INITIALIZERS[kind], **settings}
    if full.get("std", 0.0) < 0.0:
        raise ValueError(f"initializer {kind!r} has a negative std.")
    if full.get("low", 0.0) > full.get("high", 0.0):
        raise ValueError("initializer 'uniform' has low above high.")
    return full


class RowInitializer:
    """Generator of initial rows of `dim` numbers, for an initializer of INITIALIZERS."""

    def __init__(
        self,
        kind: str,
        given: Mapping[str, float],
        *,
        seed: int,
        dim: int,
        dtype: torch.dtype,
    ) -> None:
        self._seed = seed
        self._dim = dim
        self._dtype = dtype
        self._constant: float | None = None
        self._shape: Fill = _uniform(0.0, 1.0)
        settings = full_settings(kind, given)
        if kind in ("zeros", "constant"):
            self._constant = settings.get("value", 0.0)
        elif kind == "uniform":
            self._shape = _uniform(settings["low"], settings["high"])
        elif kind == "normal":
            self._shape = _normal(settings["mean"], settings["std"])
        elif kind == "truncated_normal":
            self._shape = _truncated_normal(settings["mean"], settings["std"])
        else:
            self._shape = _xavier(settings, dim)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the initial rows of these ids."""
        ids = check_ids(ids)
        out = torch.empty(len(ids), self._dim, dtype=self._dtype)
        if self._constant is not None:
            return out.fill_(self._constant)
        step = max(1, _PIECE // self._dim)
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            bits = torch.empty(len(part), self._dim, dtype=torch.float64)
            native.uniform(self._seed, part.numpy(), bits.numpy())
            out[start : start + step] = self._shape(bits)
        return out


def _uniform(low: float, high: float) -> Fill:
    return lambda bits: bits.mul_(high - low).add_(low)


def _normal(mean: float, std: float) -> Fill:
    def fill(bits: Tensor) -> Tensor:
        native.normal(bits.numpy())
        return bits.mul_(std).add_(mean)

    return fill


def _truncated_normal(mean: float, std: float) -> Fill:
    inner = _normal(mean, std)
    return lambda bits: inner(bits.mul_(1.0 - 2.0 * _TAIL).add_(_TAIL))


def _xavier(settings: dict[str, float], dim: int) -> Fill:
    # A table has no fixed height to derive a fan from. A fan that is not given is the width of a
    # row.
    total = (settings["fan_in"] or dim) + (settings["fan_out"] or dim)
    if settings["normal"]:
        return _normal(0.0, math.sqrt(2.0 / total))
    limit = math.sqrt(6.0 / total)
    return _uniform(-limit, limit)
