"""Mixed precision of programs: `decorate` wraps an optimizer.

`program_casts` decides which ops run in half precision and inserts the casts;
`decorated_optimizer` scales the loss, checks the gradients and adapts the scale.
"""

from fleetx.exports import export_imported
from fleetx.static.mixed_precision.decorated_optimizer import (
    CustomOpLists,
    LossScaling,
    MixedPrecisionStage,
    OptimizerWithMixedPrecision,
    decorate,
)
from fleetx.static.mixed_precision.program_casts import AutoMixedPrecisionLists

export_imported(globals())
