"""Layers: functions that append ops to the default main program."""

from paddle.fluid.layers import (
    collective,
    control_flow,
    detection,
    distributions,
    io,
    learning_rate_scheduler,
    loss,
    metric_op,
    nn,
    ops,
    rnn,
    sequence_lod,
    tensor,
    utils,
)
from paddle.fluid.layers.control_flow import *  # noqa: F403
from paddle.fluid.layers.detection import *  # noqa: F403
from paddle.fluid.layers.distributions import *  # noqa: F403
from paddle.fluid.layers.io import *  # noqa: F403
from paddle.fluid.layers.learning_rate_scheduler import *  # noqa: F403
from paddle.fluid.layers.loss import *  # noqa: F403
from paddle.fluid.layers.metric_op import *  # noqa: F403
from paddle.fluid.layers.nn import *  # noqa: F403
from paddle.fluid.layers.ops import *  # noqa: F403
from paddle.fluid.layers.rnn import *  # noqa: F403
from paddle.fluid.layers.sequence_lod import *  # noqa: F403
from paddle.fluid.layers.tensor import *  # noqa: F403
