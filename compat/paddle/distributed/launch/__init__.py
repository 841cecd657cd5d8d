"""`paddle.distributed.launch`: the launcher of Fleet 1.x and 2.3+, mapped to fleetrun."""

from fleetx.launch.fleetrun import main

__all__ = ["launch"]


def launch(args=None):
    """Run the job of the command line (or the list `args`), and exit with its status."""
    raise SystemExit(main(args, prog="paddle.distributed.launch"))
