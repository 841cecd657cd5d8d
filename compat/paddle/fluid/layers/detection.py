"""Layers for detecting objects."""

from fleetx.static.layers.detection_anchors import *  # noqa: F403
from fleetx.static.layers.detection_boxes import *  # noqa: F403
from fleetx.static.layers.detection_output import *  # noqa: F403
from fleetx.static.layers.detection_targets import *  # noqa: F403
from fleetx.static.layers.regions import generate_mask_labels, roi_perspective_transform
