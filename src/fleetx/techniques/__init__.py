"""Techniques: each changes stages of the training step; one file each.

`KNOWN` is the order in which they are applied: updates first, then what is around backward, then
what is around the exchange of gradients.
"""

from fleetx.step.technique import Technique
from fleetx.techniques.adaptive_local_sgd import AdaptiveLocalSgd
from fleetx.techniques.amp import Amp
from fleetx.techniques.dgc import Dgc
from fleetx.techniques.fp16_all_reduce import Fp16AllReduce
from fleetx.techniques.gradient_clip import GradientClip
from fleetx.techniques.gradient_merge import GradientMerge
from fleetx.techniques.lamb import LambTechnique
from fleetx.techniques.lars import LarsTechnique
from fleetx.techniques.local_sgd import LocalSgd
from fleetx.techniques.recompute import Recompute
from fleetx.techniques.stop_on_nan import StopOnNan

KNOWN: tuple[type[Technique], ...] = (
    LarsTechnique,
    LambTechnique,
    Dgc,
    GradientClip,
    Recompute,
    Amp,
    Fp16AllReduce,
    LocalSgd,
    AdaptiveLocalSgd,
    GradientMerge,
    StopOnNan,
)
