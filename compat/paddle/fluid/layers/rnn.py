"""Recurrent layers."""

from fleetx.static.layers import (
    GRUCell,
    LSTMCell,
    RNNCell,
    dynamic_gru,
    dynamic_lstm,
    dynamic_lstmp,
    gru_unit,
    lstm_unit,
    rnn,
)
from paddle._coverage import missing

__all__ = [
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "dynamic_gru",
    "dynamic_lstm",
    "dynamic_lstmp",
    "gru_unit",
    "lstm_unit",
    "rnn",
]

__getattr__ = missing(__name__)
