"""Image classifiers, with the signatures and parameter names of `paddle.vision.models`."""

from fleetx.exports import export_imported
from fleetx.static.models.lenet import *  # noqa: F403
from fleetx.static.models.mobilenet import *  # noqa: F403
from fleetx.static.models.resnet import *  # noqa: F403
from fleetx.static.models.vgg import *  # noqa: F403

export_imported(globals())
