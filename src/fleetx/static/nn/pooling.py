"""Pooling layers."""

from __future__ import annotations

from fleetx.exports import export_defined
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer_of import FunctionLayer, layer_of


class _Pool(FunctionLayer):
    def extra_repr(self) -> str:
        """Return the settings."""
        return ", ".join(f"{k}={v}" for k, v in self._settings.items())


AdaptiveAvgPool1D = layer_of("AdaptiveAvgPool1D", F.adaptive_avg_pool1d, base=_Pool)
AdaptiveAvgPool2D = layer_of("AdaptiveAvgPool2D", F.adaptive_avg_pool2d, base=_Pool)
AdaptiveAvgPool3D = layer_of("AdaptiveAvgPool3D", F.adaptive_avg_pool3d, base=_Pool)
AdaptiveMaxPool1D = layer_of("AdaptiveMaxPool1D", F.adaptive_max_pool1d, base=_Pool)
AdaptiveMaxPool2D = layer_of("AdaptiveMaxPool2D", F.adaptive_max_pool2d, base=_Pool)
AdaptiveMaxPool3D = layer_of("AdaptiveMaxPool3D", F.adaptive_max_pool3d, base=_Pool)
AvgPool1D = layer_of("AvgPool1D", F.avg_pool1d, base=_Pool)
AvgPool2D = layer_of("AvgPool2D", F.avg_pool2d, base=_Pool)
AvgPool3D = layer_of("AvgPool3D", F.avg_pool3d, base=_Pool)
MaxPool1D = layer_of("MaxPool1D", F.max_pool1d, base=_Pool)
MaxPool2D = layer_of("MaxPool2D", F.max_pool2d, base=_Pool)
MaxPool3D = layer_of("MaxPool3D", F.max_pool3d, base=_Pool)

export_defined(globals())
