"""Functions on Variables with the arguments of Paddle 2's `paddle.nn.functional`."""

from fleetx.exports import export_imported
from fleetx.static.layers import sequence_mask
from fleetx.static.nn.functional.activation import *  # noqa: F403
from fleetx.static.nn.functional.attention import scaled_dot_product_attention
from fleetx.static.nn.functional.common import *  # noqa: F403
from fleetx.static.nn.functional.conv import *  # noqa: F403
from fleetx.static.nn.functional.label_losses import *  # noqa: F403
from fleetx.static.nn.functional.loss import *  # noqa: F403
from fleetx.static.nn.functional.norm import *  # noqa: F403
from fleetx.static.nn.functional.pooling import *  # noqa: F403
from fleetx.static.nn.functional.vision import *  # noqa: F403

export_imported(globals())
