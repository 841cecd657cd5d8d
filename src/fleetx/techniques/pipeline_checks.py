"""What a pipeline of a program refuses: techniques that it does not combine with, and different
batches on its stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fleetx.comm.layout import Group
from fleetx.static.graph.program import Program
from fleetx.step.degrees import joins_batches
from fleetx.step.program_step import ProgramStep
from fleetx.step.technique import Job
from fleetx.techniques.same_batch import checksum


def check_program(step: ProgramStep, job: Job, config: Any) -> None:
    """Refuse what a pipeline cannot do in a program."""
    if config.schedule_mode not in ("1F1B", "F-then-B"):
        raise ValueError(
            f"pipeline_configs['schedule_mode'] is {config.schedule_mode!r}, by which a worker has "
            "several stages; FleetX can do that for modules but not for programs: set it to "
            "'1F1B' or 'F-then-B'."
        )
    if config.stages or config.cut_by != "parameters":
        raise ValueError(
            "pipeline_configs['stages'] and 'cut_by' say where a module is cut, but a program is "
            "cut by the devices of its layers: leave them out, and build the layers under "
            "device_guard('gpu:0'), device_guard('gpu:1'), …"
        )
    if joins_batches(job.strategy):
        raise ValueError(
            "hybrid_configs['joined_batches'] is True, which FleetX can do for modules but not for "
            "the pipeline of a program: leave it out, and feed all stages the same batch "
            "(fleet.data_index() of fleet.data_num())."
        )
    degrees = job.layout.degrees
    divided = "sharding" if degrees.sharding > 1 else "tensor_parallel" if degrees.mp > 1 else ""
    exchanges = (step.owner(slot) for slot in ("grad_sync", "param_sync"))
    others = [divided, *(owner.name for owner in exchanges if owner is not None)]
    if getattr(step.update, "exchanges_gradients", False):
        others.append(type(step.update).__name__)
    if job.strategy.sync_batch_norm and job.copies > 1:
        others.append("sync_batch_norm")
    if job.strategy.stop_on_nan:
        others.append("stop_on_nan")
    if job.strategy.gradient_merge:
        others.append("gradient_merge")
    precision: Any = step.owner("precision")
    if precision is not None and precision.config.rules().scaling.is_on:
        raise ValueError(
            "the strategy switches on amp with a loss scale and pipeline, whose stages would have "
            "to agree on an overflow: set amp_configs = {'dtype': 'bfloat16'}, which needs no "
            "scale, or train a torch.nn.Module."
        )
    for name in filter(None, others):
        raise ValueError(
            f"the strategy switches on pipeline and {name}, which FleetX cannot combine for "
            f"programs: switch off one of them, or train a torch.nn.Module."
        )


def feed_comparison(program: Program, stages: Group) -> Callable[[Mapping[str, Tensor]], None]:
    """Return what compares the feeds of all stages."""
    names = sorted(v.name for v in program.global_block().vars.values() if v.is_data)

    def compare(feed: Mapping[str, Tensor]) -> None:
        found = [checksum(feed[name]) if name in feed else -1 for name in names]
        every = stages.all_gather(torch.tensor([*found, 0], dtype=torch.int64))
        for i, name in enumerate(names):
            sums = {rank: int(e[i]) for rank, e in zip(stages.ranks, every, strict=True)}
            fed = {rank: each for rank, each in sums.items() if each != -1}
            other = next((r for r in fed if fed[r] != next(iter(fed.values()))), None)
            if other is not None:
                raise ValueError(
                    f"workers {', '.join(map(str, stages.ranks))} are the stages of one pipeline, "
                    f"but worker {other} is fed another {name!r} than worker {next(iter(fed))}: "
                    "choose a worker's samples by fleet.data_index() of fleet.data_num(), not by "
                    "fleet.worker_index()."
                )

    return compare
