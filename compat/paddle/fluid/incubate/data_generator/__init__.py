"""Writers of MultiSlot text."""

from fleetx.data.data_generator import *  # noqa: F403
