"""One cell for training over sequences and for a beam search."""

from fleetx.static.layers.state_cell import InitState, StateCell
from fleetx.static.layers.state_decoder import BeamSearchDecoder, TrainingDecoder
