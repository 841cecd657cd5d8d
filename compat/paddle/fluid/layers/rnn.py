"""Recurrent layers."""

from fleetx.static.layers import (
    BasicDecoder,
    BeamSearchDecoder,
    DecodeHelper,
    Decoder,
    GreedyEmbeddingHelper,
    GRUCell,
    LSTMCell,
    RNNCell,
    SampleEmbeddingHelper,
    TrainingHelper,
    beam_search,
    beam_search_decode,
    dynamic_decode,
    dynamic_gru,
    dynamic_lstm,
    dynamic_lstmp,
    gru_unit,
    lstm_unit,
    rnn,
)
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
