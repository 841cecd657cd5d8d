"""Learning-rate schedulers that the training loop moves on: `scheduler.step()`.

An optimizer keeps the rate in a persistable variable of its program (`_var_name`) and writes
`scheduler()` into it before every run. Rates computed by the program itself are in
`layers/learning_rate_scheduler.py`.
"""

from fleetx.static.lr.base import LRScheduler
from fleetx.static.lr.cycles import (
    CosineAnnealingDecay,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
    ReduceOnPlateau,
)
from fleetx.static.lr.decay import (
    ExponentialDecay,
    InverseTimeDecay,
    LambdaDecay,
    LinearLR,
    LinearWarmup,
    MultiplicativeDecay,
    MultiStepDecay,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
    StepDecay,
)

__all__ = [
    "CosineAnnealingDecay",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LRScheduler",
    "LambdaDecay",
    "LinearLR",
    "LinearWarmup",
    "MultiStepDecay",
    "MultiplicativeDecay",
    "NaturalExpDecay",
    "NoamDecay",
    "OneCycleLR",
    "PiecewiseDecay",
    "PolynomialDecay",
    "ReduceOnPlateau",
    "StepDecay",
]
