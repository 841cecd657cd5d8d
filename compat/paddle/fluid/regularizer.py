"""Weight decay."""

from fleetx.static.regularizer import (
    L1Decay,
    L1DecayRegularizer,
    L2Decay,
    L2DecayRegularizer,
    WeightDecayRegularizer,
    append_regularization_ops,
)
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
