"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetx.static.exports import export_defined
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer import Layer
from fleetx.static.variable import Variable


class _Pool(Layer):
    """Calls one of the pooling functions with what the constructor was given."""

    _function: Callable[..., Any]

    def _keep(self, **settings: Any) -> None:
        self._settings = settings

    def forward(self, x: Variable) -> Any:
        """Pool."""
        return type(self)._function(x, **self._settings)

    def extra_repr(self) -> str:
        """Return the settings."""
        return ", ".join(f"{k}={v}" for k, v in self._settings.items())


class AvgPool1D(_Pool):
    """The mean of windows of signals."""

    _function = staticmethod(F.avg_pool1d)

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        exclusive: bool = True,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            exclusive=exclusive,
            ceil_mode=ceil_mode,
        )


class AvgPool2D(_Pool):
    """The mean of windows of images."""

    _function = staticmethod(F.avg_pool2d)

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        exclusive: bool = True,
        divisor_override: float | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            exclusive=exclusive,
            divisor_override=divisor_override,
            data_format=data_format,
        )


class AvgPool3D(_Pool):
    """The mean of windows of volumes."""

    _function = staticmethod(F.avg_pool3d)

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        exclusive: bool = True,
        divisor_override: float | None = None,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            exclusive=exclusive,
            divisor_override=divisor_override,
            data_format=data_format,
        )


class MaxPool1D(_Pool):
    """The maximum of windows of signals."""

    _function = staticmethod(F.max_pool1d)

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            return_mask=return_mask,
            ceil_mode=ceil_mode,
        )


class MaxPool2D(_Pool):
    """The maximum of windows of images."""

    _function = staticmethod(F.max_pool2d)

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            return_mask=return_mask,
            ceil_mode=ceil_mode,
            data_format=data_format,
        )


class MaxPool3D(_Pool):
    """The maximum of windows of volumes."""

    _function = staticmethod(F.max_pool3d)

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            return_mask=return_mask,
            ceil_mode=ceil_mode,
            data_format=data_format,
        )


class AdaptiveAvgPool1D(_Pool):
    """Averages signals down to a given length."""

    _function = staticmethod(F.adaptive_avg_pool1d)

    def __init__(self, output_size: Any, name: str | None = None) -> None:
        super().__init__()
        self._keep(output_size=output_size)


class AdaptiveAvgPool2D(_Pool):
    """Averages images down to a given size."""

    _function = staticmethod(F.adaptive_avg_pool2d)

    def __init__(
        self, output_size: Any, data_format: str = "NCHW", name: str | None = None
    ) -> None:
        super().__init__()
        self._keep(output_size=output_size, data_format=data_format)


class AdaptiveAvgPool3D(_Pool):
    """Averages volumes down to a given size."""

    _function = staticmethod(F.adaptive_avg_pool3d)

    def __init__(
        self, output_size: Any, data_format: str = "NCDHW", name: str | None = None
    ) -> None:
        super().__init__()
        self._keep(output_size=output_size, data_format=data_format)


class AdaptiveMaxPool1D(_Pool):
    """Takes maxima of signals down to a given length."""

    _function = staticmethod(F.adaptive_max_pool1d)

    def __init__(
        self, output_size: Any, return_mask: bool = False, name: str | None = None
    ) -> None:
        super().__init__()
        self._keep(output_size=output_size, return_mask=return_mask)


class AdaptiveMaxPool2D(AdaptiveMaxPool1D):
    """Takes maxima of images down to a given size."""

    _function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3D(AdaptiveMaxPool1D):
    """Takes maxima of volumes down to a given size."""

    _function = staticmethod(F.adaptive_max_pool3d)


export_defined(globals())
