"""`fleetx plan`: which parallel layouts of a model fit a cluster, and the step time of each.

The model is built and run on meta tensors, so that neither the cluster nor the memory for the model
is needed. Figures are computed, not measured; the output explains how.
"""

from __future__ import annotations

import argparse
import runpy
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

_OPTIMIZERS = {"adam": 2, "adamw": 2, "momentum": 1, "sgd": 0}


def add(commands: Any) -> None:
    """Add the command to those of `fleetx`."""
    plan = commands.add_parser(
        "plan",
        help="plan how to train a model on a cluster, without the cluster",
        description="Plans a job on meta tensors: which layouts fit, and their step times.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    plan.add_argument(
        "model", help="file.py:function; the function returns a module and the tuple of a batch"
    )
    plan.add_argument("--workers", type=int, required=True, help="workers of the job")
    plan.add_argument(
        "--memory", type=_of("b"), required=True, help="memory per worker, such as 24GB or 16GiB"
    )
    plan.add_argument(
        "--bandwidth",
        type=_of("bit", "b"),
        required=True,
        help="bandwidth between machines, such as 10Gbit",
    )
    plan.add_argument("--per-machine", type=int, help="workers per machine (default: 1)")
    plan.add_argument(
        "--inside",
        type=_of("bit", "b"),
        help="bandwidth between workers of a machine (default: 200Gbit)",
    )
    plan.add_argument(
        "--flops",
        type=_of("flop", "flops", ""),
        help="operations per second of a worker, such as 60Tflops (default: measured on this CPU)",
    )
    plan.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="NCCL or Gloo between workers"
    )
    plan.add_argument("--optimizer", choices=_OPTIMIZERS, default="adam", help="its state counts")
    plan.add_argument("--show", type=int, default=10, help="plans to show")
    plan.set_defaults(command=_plan)


def _of(*units: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        from fleetx.fleet.planning.cluster import quantity

        try:
            return quantity(text, units)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _plan(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.fleet.planning.cluster import Cluster
    from fleetx.fleet.planning.model_figures import examine
    from fleetx.fleet.planning.report import report

    try:
        flops = arguments.flops or own_flops()
        cluster = Cluster(
            workers=arguments.workers,
            per_machine=arguments.per_machine or 1,
            memory=arguments.memory,
            bandwidth=arguments.bandwidth,
            inside=arguments.inside or 25e9,
            flops=flops,
            device=arguments.device,
        )
        figures = examine(*_build(arguments.model))
        text = report(figures, cluster, _OPTIMIZERS[arguments.optimizer], arguments.show)
    except ValueError as error:
        Console(stderr=True).print(f"fleetx: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


def _build(name: str) -> tuple[Any, Any]:
    """Return a model and a batch on meta tensors."""
    import torch

    path, colon, function = name.rpartition(":")
    if not colon or not Path(path).is_file():
        raise ValueError(
            f"{name!r} does not name a function in a file: write file.py:function, where the "
            "function returns a module and the tuple of a batch."
        )
    found = runpy.run_path(path).get(function)
    if not callable(found):
        raise ValueError(f"{path} has no function {function!r}.")
    with torch.device("meta"):
        made = found()
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], torch.nn.Module):
        raise ValueError(f"{name} must return a module and the tuple of a batch.")
    model, batch = made
    return model.to("meta"), tuple(batch) if isinstance(batch, tuple | list) else (batch,)


def own_flops(size: int = 1024, seconds: float = 0.3) -> float:
    """Return the operations per second of matrix products on this CPU."""
    import torch

    multiply = partial(torch.mm, torch.randn(size, size), torch.randn(size, size))
    multiply()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        multiply()
        count += 1
    return 2 * size**3 * count / (time.perf_counter() - start)
