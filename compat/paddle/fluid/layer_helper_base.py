"""What layers are built with."""

from fleetx.static.building.layer_helper import LayerHelper as LayerHelperBase
