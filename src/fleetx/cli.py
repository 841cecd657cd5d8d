"""The command `fleetx`: look at the machine and at saved models from a terminal.

`fleetx info` prints the versions, devices and thread counts that a training run would use.
"""

import argparse
import os
import platform
from collections.abc import Callable, Sequence
from importlib import metadata

from rich.console import Console
from rich.table import Table

import fleetx

# Distributions whose version decides how a program runs or which files it can read.
_DISTRIBUTIONS = ("torch", "numpy", "protobuf", "safetensors", "pyzmq", "onnx", "onnxruntime")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit status."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace, Console], int] = arguments.command
    return command(arguments, Console())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleetx", description=fleetx.__doc__)
    parser.add_argument("--version", action="version", version=f"fleetx {fleetx.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="print versions, devices and threads")
    info.set_defaults(command=_info)
    return parser


def _info(_: argparse.Namespace, console: Console) -> int:
    import torch  # here, so that `fleetx --help` answers at once

    table = Table(title=f"FleetX {fleetx.__version__}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("Python", f"{platform.python_version()} ({platform.platform()})")
    for name in _DISTRIBUTIONS:
        table.add_row(name, _version(name))
    table.add_row("paddle (names)", _version("fleetx-paddle"))
    table.add_section()
    table.add_row("CPU", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads for PyTorch")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            card = torch.cuda.get_device_properties(index)
            table.add_row(f"GPU {index}", f"{card.name}, {card.total_memory / 2**30:.0f} GiB")
    else:
        table.add_row("GPU", "none: CUDAPlace falls back to the CPU")
    backends = [b for b in ("nccl", "gloo", "mpi") if torch.distributed.is_backend_available(b)]
    table.add_row("Collectives", ", ".join(backends))
    console.print(table)
    return 0


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
