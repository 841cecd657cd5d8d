"""Layers as classes on a program's Variables, with the names of Paddle 2's `paddle.nn`."""

from fleetx.exports import export_imported
from fleetx.static.nn import functional
from fleetx.static.nn.activation import *  # noqa: F403
from fleetx.static.nn.common import *  # noqa: F403
from fleetx.static.nn.container import *  # noqa: F403
from fleetx.static.nn.conv import *  # noqa: F403
from fleetx.static.nn.layer import Layer
from fleetx.static.nn.loss import *  # noqa: F403
from fleetx.static.nn.norm import *  # noqa: F403
from fleetx.static.nn.pooling import *  # noqa: F403
from fleetx.static.nn.recurrent import *  # noqa: F403
from fleetx.static.nn.transformer import *  # noqa: F403

export_imported(globals())
