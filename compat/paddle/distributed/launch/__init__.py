"""`paddle.distributed.launch`: the launcher of Fleet 1.x and 2.3+, which is fleetrun here."""

from fleetx.launch.fleetrun import main

__all__ = ["launch"]


def launch(args=None):
    """Start what the command line (or the list `args`) says, and end with its exit code."""
    raise SystemExit(main(args, prog="paddle.distributed.launch"))
