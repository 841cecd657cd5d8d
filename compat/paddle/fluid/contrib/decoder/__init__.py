"""Decoders that run one cell in training and in a beam search."""

from fleetx.static.layers.state_cell import InitState, StateCell
from fleetx.static.layers.state_decoder import BeamSearchDecoder, TrainingDecoder
