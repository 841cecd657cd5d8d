"""The limits of an elastic job, and the differences of its step from that of a fixed group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fleetx.step.gradient_sync import AfterBackward
from fleetx.step.stages import GradientSync
from fleetx.step.technique import Job, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.gradient_merge import MergedGradients

SUPPORTED = (
    "adaptive_localsgd",
    "amp",
    "dgc",
    "fp16_allreduce",
    "gradient_clip",
    "gradient_merge",
    "lamb",
    "lars",
    "localsgd",
    "powersgd",
    "recompute",
    "signsgd",
)
_SWITCHES = ("auto", "sync_batch_norm", "use_hierarchical_allreduce")


def prepare_step(
    step: TrainStep, job: Job, techniques: Sequence[Technique[Any]], divisor: Callable[[], float]
) -> None:
    """Make a step exchange gradients after backward, where a failed exchange can be repeated.

    `divisor` returns this worker's gradient divisor. Raises ValueError for techniques that an
    elastic job does not support.
    """
    check(job, techniques)
    sync = step.grad_sync
    if type(sync.innermost()) is GradientSync:
        average = AfterBackward(job.exchange(), step.precision.message_scale)
        if isinstance(sync, MergedGradients):
            sync.inner = average
        else:
            step.grad_sync = average
    inner = step.grad_sync.innermost()
    if isinstance(inner, AfterBackward):
        inner.divisor = divisor


def check(job: Job, techniques: Sequence[Technique[Any]]) -> None:
    """Raise ValueError for techniques that an elastic job does not support."""
    for technique in techniques:
        if technique.name == "sharding":
            raise ValueError(
                "strategy.sharding cannot be used in an elastic job: the part of the optimizer's "
                "state that a worker holds would be lost with it; switch it off, or start fleetrun "
                "without --elastic."
            )
        if technique.name not in SUPPORTED:
            raise ValueError(
                f"strategy.{technique.name} cannot be used in an elastic job: switch it off, or "
                f"start fleetrun without --elastic (supported: {', '.join(SUPPORTED)})."
            )
        if obstacle := technique.elastic_obstacle():
            raise ValueError(
                f"strategy.{technique.name} cannot be used like this in an elastic job: {obstacle}."
            )
    for switch in _SWITCHES:
        if getattr(job.strategy, switch, False):
            raise ValueError(
                f"strategy.{switch} cannot be used in an elastic job, whose workers come and go: "
                "switch it off, or start fleetrun without --elastic."
            )


def refuse(call: str, instead: str) -> NoReturn:
    """Raise RuntimeError for a call that an elastic job cannot make."""
    raise RuntimeError(
        f"{call} needs all workers at one point of the script, but workers of an elastic job join "
        f"and leave at any time: {instead}."
    )
