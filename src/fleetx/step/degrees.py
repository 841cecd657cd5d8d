"""The degrees of parallelism of a strategy, checked against the number of workers.

`hybrid_configs` has all of them; `tensor_parallel_configs`, `sharding_configs` and `pipeline` each
have their own. The remaining factor is the number of copies of the model. With one worker all
degrees are 1, so that the same script runs on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetx.comm.layout import Degrees

_KEYS = {"dp": "dp_degree", "pp": "pp_degree", "sharding": "sharding_degree", "mp": "mp_degree"}


def hybrid_degree(strategy: Any, axis: str) -> int:
    """Return a degree of `hybrid_configs`; 1 if it is not set."""
    configs: Mapping[str, Any] = getattr(strategy, "hybrid_configs", {})
    return max(1, int(configs.get(_KEYS[axis], 1)))


def joins_batches(strategy: Any) -> bool:
    """Return whether the workers of a copy bring different samples."""
    return bool(getattr(strategy, "hybrid_configs", {}).get("joined_batches", False))


def micro_batches(strategy: Any, stages: int) -> int:
    """Return into how many micro-batches a pipeline of so many workers divides a batch: as many,
    unless it is set; without a pipeline, into one."""
    configs = getattr(strategy, "pipeline_configs", {})
    given = [key for key in ("accumulate_steps", "micro_batch") if key in _given(configs)]
    return int(configs[given[0]]) if given and stages > 1 else stages


def _given(configs: Any) -> Any:
    """Return the settings that a script has set."""
    return getattr(configs, "given", ())


def degrees_of(strategy: Any, workers: int) -> Degrees:
    """Return the degrees of a job.

    Raises ValueError if their product is not the number of workers, with degrees that fit.
    """
    if workers < 2:
        return Degrees(dp=workers)
    mp = _tensor_degree(strategy)
    pp = hybrid_degree(strategy, "pp")
    dp = int(getattr(strategy, "hybrid_configs", {}).get("dp_degree", -1))
    is_given, sharding = _sharding_degree(strategy)
    if getattr(strategy, "pipeline", False) and pp == 1:
        pp = max(1, workers // (mp * (sharding if is_given else 1) * max(1, dp)))
    rest = mp * pp
    if getattr(strategy, "sharding", False) and not is_given:  # all that no other degree takes
        sharding = max(1, workers // (rest * max(1, dp)))
    if dp < 1:
        dp = max(1, workers // (rest * sharding))
    degrees = Degrees(dp=dp, pp=pp, sharding=sharding, mp=mp)
    if degrees.workers != workers:
        raise ValueError(_not_divisible(degrees, workers))
    return degrees


def _tensor_degree(strategy: Any) -> int:
    hybrid = hybrid_degree(strategy, "mp")
    if not getattr(strategy, "tensor_parallel", False):
        return hybrid
    configs = strategy.tensor_parallel_configs
    own = int(configs["tensor_parallel_degree"])
    if own > 1 and hybrid not in (1, own):
        raise ValueError(
            f"tensor_parallel_configs['tensor_parallel_degree'] is {own}, but "
            f"hybrid_configs['mp_degree'] is {hybrid}: leave one of them out."
        )
    return max(own, hybrid)


def _sharding_degree(strategy: Any) -> tuple[bool, int]:
    """Return whether a degree is set, and which."""
    hybrid = hybrid_degree(strategy, "sharding")
    if not getattr(strategy, "sharding", False):
        return hybrid > 1, hybrid
    configs = strategy.sharding_configs
    keys = ("sharding_degree", "sharding_group_size")
    found = {key: int(configs[key]) for key in keys if key in _given(configs)}
    if hybrid > 1:
        found["hybrid_configs"] = hybrid
    if len(set(found.values())) > 1:
        raise ValueError(
            f"sharding_configs and hybrid_configs ask for different degrees of sharding "
            f"({', '.join(map(str, found.values()))}): leave all but one of them out."
        )
    return bool(found), next(iter(found.values()), 1)


def _not_divisible(degrees: Degrees, workers: int) -> str:
    asked = ", ".join(
        f"{_KEYS[axis]} {getattr(degrees, axis)}" for axis in _KEYS if getattr(degrees, axis) > 1
    )
    parts = degrees.pp * degrees.sharding * degrees.mp
    if workers % parts == 0:
        way = f"set hybrid_configs['dp_degree'] to {workers // parts}, or leave it out"
    else:
        fitting = ", ".join(str(n) for n in range(1, workers + 1) if workers % n == 0)
        way = f"choose degrees whose product is {workers}; its divisors are {fitting}"
    return (
        f"the degrees of the strategy ({asked}) make {degrees.workers} workers, but the job has "
        f"{workers}: {way}."
    )
