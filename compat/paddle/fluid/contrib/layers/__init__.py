"""Further layers."""

from fleetx.static.layers.contrib import *  # noqa: F403
from fleetx.static.layers.stacked_rnn import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
