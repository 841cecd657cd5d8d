"""`python -m paddle.distributed.launch_ps`: Fleet 1.x's launcher of server jobs.

Its flags are fleetrun's by other names and defaults; `--print_config` without a value starts
nothing, as in Paddle 1.8.
"""

import argparse
from collections.abc import Sequence

from fleetx.launch.fleetrun import main

__all__ = ["launch", "parse_args"]


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="launch_ps", description="Start a server job.")
    parser.add_argument("--cluster_node_ips", default="127.0.0.1")
    parser.add_argument("--node_ip", default="127.0.0.1")
    parser.add_argument("--start_port", type=int, default=6170)
    parser.add_argument("--print_config", type=bool, default=True)
    parser.add_argument("--endpoints", default="")
    parser.add_argument("--worker_num", type=int, default=2)
    parser.add_argument("--server_num", type=int, default=2)
    parser.add_argument("--log_dir", default="logs")
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args)


def launch(args: Sequence[str] | None = None) -> None:
    """Run the job of the command line, and exit with its status."""
    given = parse_args(args)
    if not given.print_config:
        return
    flags = [f"--worker_num={given.worker_num}", f"--server_num={given.server_num}"]
    if given.endpoints:
        flags.append(f"--servers={given.endpoints}")
    else:
        flags.append(f"--started_port={given.start_port}")
    if given.cluster_node_ips != "127.0.0.1":
        flags += [f"--ips={given.cluster_node_ips}", f"--host={given.node_ip}"]
    flags += [f"--log_dir={given.log_dir}", given.training_script, *given.training_script_args]
    raise SystemExit(main(flags, prog="paddle.distributed.launch_ps"))


if __name__ == "__main__":
    launch()
