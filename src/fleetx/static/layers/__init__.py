"""Layers: functions that append ops to the default main program and return Variables.

Arguments with the same meaning everywhere: `name`, the layer's name, which the names of its
variables begin with; `act`, the name of an activation; `dtype`, the element type; `param_attr` and
`bias_attr`, the `ParamAttr` of weights and bias (False for no bias).
"""

# One line per module, each with an `__all__`.
from fleetx.static.layers.activations import *  # noqa: F403
from fleetx.static.layers.array import *  # noqa: F403
from fleetx.static.layers.beam_decoder import *  # noqa: F403
from fleetx.static.layers.beam_search import *  # noqa: F403
from fleetx.static.layers.compare import *  # noqa: F403
from fleetx.static.layers.control_flow import *  # noqa: F403
from fleetx.static.layers.conv import *  # noqa: F403
from fleetx.static.layers.creation import *  # noqa: F403
from fleetx.static.layers.crf import *  # noqa: F403
from fleetx.static.layers.ctc import *  # noqa: F403
from fleetx.static.layers.debug import *  # noqa: F403
from fleetx.static.layers.decode import *  # noqa: F403
from fleetx.static.layers.decode_helpers import *  # noqa: F403
from fleetx.static.layers.deformable_conv import *  # noqa: F403
from fleetx.static.layers.detection_anchors import *  # noqa: F403
from fleetx.static.layers.detection_boxes import *  # noqa: F403
from fleetx.static.layers.detection_output import *  # noqa: F403
from fleetx.static.layers.detection_targets import *  # noqa: F403
from fleetx.static.layers.distributions import *  # noqa: F403
from fleetx.static.layers.dynamic_rnn import *  # noqa: F403
from fleetx.static.layers.inplace_abn import *  # noqa: F403
from fleetx.static.layers.io import *  # noqa: F403
from fleetx.static.layers.joining import *  # noqa: F403
from fleetx.static.layers.learning_rate_scheduler import *  # noqa: F403
from fleetx.static.layers.linalg import *  # noqa: F403
from fleetx.static.layers.loss import *  # noqa: F403
from fleetx.static.layers.math import *  # noqa: F403
from fleetx.static.layers.metric import *  # noqa: F403
from fleetx.static.layers.nn import *  # noqa: F403
from fleetx.static.layers.norm import *  # noqa: F403
from fleetx.static.layers.pool import *  # noqa: F403
from fleetx.static.layers.py_func import *  # noqa: F403
from fleetx.static.layers.random import *  # noqa: F403
from fleetx.static.layers.recommendation import *  # noqa: F403
from fleetx.static.layers.recurrent import *  # noqa: F403
from fleetx.static.layers.regions import *  # noqa: F403
from fleetx.static.layers.resize import *  # noqa: F403
from fleetx.static.layers.rnn_cells import *  # noqa: F403
from fleetx.static.layers.sampled_loss import *  # noqa: F403
from fleetx.static.layers.search import *  # noqa: F403
from fleetx.static.layers.sequence import *  # noqa: F403
from fleetx.static.layers.slicing import *  # noqa: F403
from fleetx.static.layers.static_rnn import *  # noqa: F403
from fleetx.static.layers.switch import *  # noqa: F403
from fleetx.static.layers.tensor import *  # noqa: F403
from fleetx.static.layers.vision import *  # noqa: F403
from fleetx.static.layers.while_loop import *  # noqa: F403
