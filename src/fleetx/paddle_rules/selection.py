"""The techniques of a strategy that Paddle 2.x would apply.

Paddle drops the others silently, and its scripts rely on that. Its rule: a technique that does not
suit the job is dropped; of the rest it applies the longest chain in which each may wrap all that
follow. FleetX itself rejects conflicts instead, and combines more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

OPTIMIZERS = {
    "amp": "AMPOptimizer",
    "adaptive_localsgd": "AdaptiveLocalSGDOptimizer",
    "dgc": "DGCOptimizer",
    "fp16_allreduce": "FP16AllReduceOptimizer",
    "gradient_merge": "GradientMergeOptimizer",
    "lamb": "LambOptimizer",
    "lars": "LarsOptimizer",
    "localsgd": "LocalSGDOptimizer",
    "pipeline": "PipelineOptimizer",
    "recompute": "RecomputeOptimizer",
}
"""Paddle's class of each technique; the order of the names is the order of candidates."""

GRAPH = "GraphExecutionOptimizer"
_WITHOUT_GRAPH = {"localsgd", "adaptive_localsgd", "pipeline"}

_MAY_WRAP = {
    "amp": {"lars", "lamb", "recompute"},
    "recompute": {"lars", "lamb", "dgc"},
    "gradient_merge": {"amp", "lars", "lamb", "recompute"},
    "fp16_allreduce": {
        *("lars", "lamb", "recompute", "localsgd", "adaptive_localsgd", "gradient_merge"),
    },
    "localsgd": {"amp"},
    "pipeline": {"amp", "recompute"},  # as in 2.1; in 2.0 it combines with nothing
    "adaptive_localsgd": {"amp"},
}


def longest_chain(names: Sequence[str]) -> list[str]:
    """Return the chain of techniques that is applied, outermost first.

    Of equally long chains the last one found wins, as pairs are extended over the candidates in
    order; if no two combine, the first candidate is applied.
    """
    candidates = [name for name in OPTIMIZERS if name in names]
    if not candidates:
        return []
    paths: dict[tuple[str, str], list[str]] = {}
    best: tuple[str, str] | None = None
    for outer in candidates:
        for inner in candidates:
            if inner in _MAY_WRAP.get(outer, ()):
                paths[outer, inner] = [inner]
                best = best or (outer, inner)
    for middle in candidates:
        for outer in candidates:
            for inner in candidates:
                ends = (outer, inner)
                halves = (outer, middle), (middle, inner)
                # Only pairs that may be neighbours are extended.
                if ends not in paths or any(half not in paths for half in halves):
                    continue
                longer = paths[halves[0]] + paths[halves[1]]
                if len(longer) > len(paths[ends]):
                    paths[ends], best = longer, ends
    return [candidates[0]] if best is None else [best[0], *paths[best]]


def fits(name: str, strategy: Any, optimizer: Any, workers: int) -> str | None:
    """Return why Paddle would not apply a technique in this job; None if it would."""
    kind = type(optimizer).__name__.removesuffix("Optimizer")
    if name == "recompute" and not strategy.recompute_configs["checkpoints"]:
        return "recompute_configs has no checkpoints"
    if name == "gradient_merge" and strategy.gradient_merge_configs["k_steps"] <= 1:
        return "gradient_merge_configs has no k_steps above 1"
    if name in ("localsgd", "adaptive_localsgd", "dgc") and workers < 2:
        return "there is only one worker"
    wanted = {
        "localsgd": ("SGD", "Momentum"),
        "adaptive_localsgd": ("SGD", "Momentum"),
        "lars": ("Momentum",),
        "dgc": ("Momentum", "DGCMomentum"),
        "lamb": ("Adam",),
    }.get(name)
    if wanted and kind not in wanted:
        return f"it needs the inner optimizer to be {' or '.join(wanted)}, not {kind}"
    return None


def select(strategy: Any, optimizer: Any, workers: int, warn: Callable[[str], None]) -> list[str]:
    """Return the techniques to apply, outermost first.

    `warn` is called with one line that lists dropped techniques and reasons.
    """
    wanted = [name for name in OPTIMIZERS if getattr(strategy, name)]
    reasons = {name: fits(name, strategy, optimizer, workers) for name in wanted}
    chain = longest_chain([name for name in wanted if reasons[name] is None])
    together = " and ".join(chain)
    dropped = [
        f"{name} ({reasons[name] or f'it does not combine with {together}'})"
        for name in wanted
        if name not in chain
    ]
    if dropped:
        warn(f"the strategy's {', '.join(dropped)} is switched off, as Paddle does.")
    return chain


def class_names(techniques: Sequence[str]) -> list[str]:
    """Return Paddle's classes of techniques, outermost first, without those it lacks."""
    chain = longest_chain(techniques)
    rest = [name for name in techniques if name not in chain]
    return [OPTIMIZERS[name] for name in [*chain, *rest] if name in OPTIMIZERS]


def keeps_graph(techniques: Sequence[str]) -> bool:
    """Return whether Paddle would optimize the graph as a whole with these techniques."""
    return _WITHOUT_GRAPH.isdisjoint(techniques)
