"""Layers: functions that append ops to the default main program and return Variables."""

# One line per module, each with an `__all__`.
from fleetx.static.layers.conv import *  # noqa: F403
from fleetx.static.layers.io import *  # noqa: F403
from fleetx.static.layers.loss import *  # noqa: F403
from fleetx.static.layers.metric import *  # noqa: F403
from fleetx.static.layers.nn import *  # noqa: F403
from fleetx.static.layers.norm import *  # noqa: F403
from fleetx.static.layers.pool import *  # noqa: F403
from fleetx.static.layers.resize import *  # noqa: F403
from fleetx.static.layers.vision import *  # noqa: F403
