"""Further layers."""

from fleetx.static.layers.contrib import *  # noqa: F403
from fleetx.static.layers.ctr_metrics import *  # noqa: F403
from fleetx.static.layers.detection_output import multiclass_nms2
from fleetx.static.layers.fused_activation import *  # noqa: F403
from fleetx.static.layers.image_sequences import *  # noqa: F403
from fleetx.static.layers.stacked_rnn import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
