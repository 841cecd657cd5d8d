"""Learning rates that change with the step or the epoch."""

from fleetx.static.lr import *  # noqa: F403
