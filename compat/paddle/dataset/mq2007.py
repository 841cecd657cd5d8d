"""The data set `mq2007`, from unpacked local files."""

from fleetx.data.mq2007 import *  # noqa: F403
