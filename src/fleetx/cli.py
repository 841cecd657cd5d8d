"""The command `fleetx`: inspect the machine, saved models and runs from a terminal.

`fleetx info` prints the versions, devices and thread counts that a training run would use,
`fleetx show MODEL` a program saved by FleetX or Paddle; `fleetx ps export` converts a saved table
of a parameter server for other programs, `fleetx ps keys` generates the keys of a job, `fleetx ps
repair` cuts a server's damaged log, `fleetx ps resize` changes the number of servers of a running
job, `fleetx ps replace` runs a lost one at another address; `fleetx serve MODEL` serves a saved
model over HTTP, `fleetx evaluate MODEL` checks the results of such a server; `fleetx data check`
checks an ImageNet data set for errors; `fleetx report FOLDER` writes a report of a run, `fleetx
timeline FOLDER` merges the timelines of its workers; `fleetx plan MODEL` finds out how a model fits
a cluster.
"""

import argparse
import math
import os
import platform
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import fleetx
from fleetx.checkpoint import FormatError
from fleetx.data import check_command as data
from fleetx.evaluation import evaluate_command as evaluation
from fleetx.fleet.planning import plan_command as planning
from fleetx.kernels import compiled
from fleetx.monitor import log_commands as monitor
from fleetx.ps import server_commands as servers
from fleetx.serving import serve_command as serving

# Distributions whose version affects how a program runs or which files it can read.
_DISTRIBUTIONS = ("torch", "numpy", "protobuf", "safetensors", "pyzmq", "onnx", "onnxruntime")

# Persistable in a saved program, but without values: the feed and fetch variables.
_HOLDERS = ("feed", "fetch")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit status."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace, Console], int] = arguments.command
    try:
        return command(arguments, Console())
    except (OSError, FormatError, ModuleNotFoundError) as error:
        # a missing or invalid file, an optional package that is not installed
        Console(stderr=True).print(f"fleetx: {error}", style="red", markup=False, soft_wrap=True)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleetx", description=fleetx.__doc__)
    parser.add_argument("--version", action="version", version=f"fleetx {fleetx.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="print versions, devices and threads")
    info.set_defaults(command=_info)
    show = commands.add_parser("show", help="print a saved program")
    show.add_argument(
        "model",
        type=Path,
        help="a .pdmodel or __model__ file, its path prefix, or its folder",
    )
    show.set_defaults(command=_show)
    servers.add(commands)
    data.add(commands)
    serving.add(commands)
    evaluation.add(commands)
    monitor.add(commands)
    planning.add(commands)
    return parser


def _info(_: argparse.Namespace, console: Console) -> int:
    import torch  # imported late, so that `fleetx --help` is fast

    from fleetx.comm.device import gpu_count
    from fleetx.runtime import cpu_isa

    table = Table(title=f"FleetX {fleetx.__version__}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("Python", f"{platform.python_version()} ({platform.platform()})")
    for name in _DISTRIBUTIONS:
        table.add_row(name, _version(name))
    table.add_row("paddle (names)", _version("fleetx-paddle"))
    table.add_section()
    table.add_row("CPU", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads for PyTorch")
    capability = torch.backends.cpu.get_cpu_capability()
    found = cpu_isa.examine()
    table.add_row("CPU instruction set", f"{capability}; {found.sentence()}")
    for row in _gpu_rows([torch.cuda.get_device_properties(i) for i in range(gpu_count())]):
        table.add_row(*row)
    backends = [b for b in ("nccl", "gloo", "mpi") if torch.distributed.is_backend_available(b)]
    table.add_row("Collectives", ", ".join(backends))
    table.add_section()
    for module, purpose in compiled.MODULES.items():
        reason = compiled.why_missing(module)
        state = "compiled" if reason is None else f"in Python, slower: {reason}"
        table.add_row(purpose, f"{state} ({module})")
    console.print(table)
    return 0


def _gpu_rows(cards: Sequence[Any]) -> list[tuple[str, str]]:
    """Return a row per GPU, from torch.cuda.get_device_properties."""
    if not cards:
        return [("GPU", "none: CUDAPlace falls back to the CPU")]
    sizes = [f"{card.name}, {card.total_memory / 2**30:.0f} GiB" for card in cards]
    return [(f"GPU {index}", text) for index, text in enumerate(sizes)]


def _show(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.static.io import feed_names_of, fetch_names_of
    from fleetx.static.protobuf.serialize import program_from_bytes

    path = _program_file(arguments.model)
    program = program_from_bytes(path.read_bytes(), source=str(path))
    ops = sum(len(block.ops) for block in program.blocks)
    kept = [var for var in program.list_vars() if var.persistable and var.name not in _HOLDERS]
    numbers = sum(math.prod(var.shape) for var in kept)
    console.print(str(program), markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{path}: {ops} ops, {len(kept)} saved variables with {numbers:,} numbers; "
        f"feeds {', '.join(feed_names_of(program)) or 'none marked'}; "
        f"fetches {', '.join(fetch_names_of(program)) or 'none marked'}",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _program_file(model: Path) -> Path:
    """Return the program file of the given model."""
    candidates = [model, model.with_name(model.name + ".pdmodel"), model / "__model__"]
    if model.is_dir():
        candidates += sorted(model.glob("*.pdmodel"))
    for path in candidates:
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"there is no program in {str(model)!r}: name a .pdmodel or __model__ file, the path that "
        "was given to save_inference_model, or the folder that holds one of them."
    )


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
