"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.spatial_variants import LAYOUTS
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Normal
from fleetx.static.layers.window_args import check_choice, convert_to_list
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer_of import Spatial


class _Conv(Spatial):
    """Base of all convolutions: sizes, a weight and a bias."""

    _transposed = False

    def _build(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        groups: int,
        weight_attr: Any,
        bias_attr: Any,
    ) -> None:
        if weight_attr is False:
            raise ValueError(f"weight_attr of {type(self).__name__} must not be False.")
        self._check_groups(in_channels, out_channels, groups)
        kernel = convert_to_list(kernel_size, self._axes, "kernel_size")
        self._in_channels, self._out_channels, self._kernel_size = in_channels, out_channels, kernel
        if self._transposed:
            shape, initializer = [in_channels, out_channels // groups, *kernel], None
        else:
            shape = [out_channels, in_channels // groups, *kernel]
            initializer = Normal(0.0, (2.0 / (in_channels * math.prod(kernel))) ** 0.5)
        self.weight = self.create_parameter(
            shape, attr=weight_attr, default_initializer=initializer
        )
        self.bias = self.create_parameter([out_channels], attr=bias_attr, is_bias=True)

    def _check_groups(self, in_channels: int, out_channels: int, groups: int) -> None:
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: in_channels {in_channels} and out_channels {out_channels} "
                f"must be divisible by groups {groups}."
            )

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self._in_channels}, {self._out_channels}, kernel_size={self._kernel_size}"


class _PlainConv(_Conv):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str | None = None,
    ) -> None:
        super().__init__()
        modes = ("zeros", "reflect", "replicate", "circular")
        check_choice(padding_mode, "padding_mode", modes, type(self).__name__)
        self._padding, self._padding_mode = padding, padding_mode
        self._data_format = data_format or LAYOUTS[self._axes][0]
        self._settings = {"stride": stride, "dilation": dilation, "groups": groups}
        self._build(in_channels, out_channels, kernel_size, groups, weight_attr, bias_attr)

    def forward(self, x: Variable) -> Variable:
        """Convolve."""
        padding = self._padding
        if self._padding_mode != "zeros":
            amounts = convert_to_list(padding, self._axes, "padding")
            both = [p for p in reversed(amounts) for _ in range(2)]
            x = F.pad(x, both, self._padding_mode, 0.0, self._data_format)
            padding = 0
        settings = {"padding": padding, "data_format": self._data_format, **self._settings}
        return getattr(F, f"conv{self._axes}d")(x, self.weight, self.bias, **settings)


class Conv1D(_PlainConv, axes=1):
    """Convolves signals [N, C, L]."""


class Conv2D(_PlainConv, axes=2):
    """Convolves images [N, C, H, W]."""


class Conv3D(_PlainConv, axes=3):
    """Convolves volumes [N, C, D, H, W]."""


class _TransposedConv(_Conv):
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
    ) -> None:
        super().__init__()
        self._output_padding = output_padding
        self._settings = {"stride": stride, "padding": padding, "dilation": dilation}
        self._settings |= {"groups": groups, "data_format": data_format}
        self._build(in_channels, out_channels, kernel_size, groups, weight_attr, bias_attr)

    def forward(self, x: Variable, output_size: Any = None) -> Variable:
        """Convolve; `output_size` resolves the ambiguity of sizes with a stride above 1."""
        size = {"output_padding": self._output_padding if output_size is None else 0}
        settings = {**self._settings, **size, "output_size": output_size}
        return getattr(F, f"conv{self._axes}d_transpose")(x, self.weight, self.bias, **settings)


class Conv1DTranspose(_TransposedConv, axes=1):
    """Transposed convolution of signals."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCL",
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation,
            groups, weight_attr, bias_attr, data_format,
        )  # fmt: skip


class Conv2DTranspose(_TransposedConv, axes=2):
    """Transposed convolution of images."""


class Conv3DTranspose(_TransposedConv, axes=3):
    """Transposed convolution of volumes."""


export_defined(globals())
