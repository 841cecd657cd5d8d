"""One cell for training over sequences and for a beam search."""

from fleetx.static.layers.state_decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]
