"""Weight decay."""

from fleetx.static.regularizer import (
    L1Decay,
    L1DecayRegularizer,
    L2Decay,
    L2DecayRegularizer,
    WeightDecayRegularizer,
    append_regularization_ops,
)
