"""Recurrent layers."""

from fleetx.static.layers import (
    BeamSearchDecoder,
    Decoder,
    beam_search,
    beam_search_decode,
    dynamic_decode,
)
from fleetx.static.layers.decode_helpers import *  # noqa: F403
from fleetx.static.layers.recurrent import *  # noqa: F403
from fleetx.static.layers.rnn_cells import *  # noqa: F403
