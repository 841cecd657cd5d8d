"""Normalisation layers."""

from __future__ import annotations

import math
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant, Normal
from fleetx.static.layers.norm import statistics_outputs
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer import Layer
from fleetx.static.nn.layer_of import InputLayer, layer_of


class _Affine(Layer):
    """A normalisation with learned scale and shift."""

    def _scale_and_shift(self, size: int, weight_attr: Any, bias_attr: Any) -> tuple[Any, Any]:
        """Create the scale (ones) and the shift (zeros)."""
        scale = self.create_parameter([size], attr=weight_attr, default_initializer=Constant(1.0))
        return scale, self.create_parameter([size], attr=bias_attr, is_bias=True)


class _Statistics(_Affine):
    """A scale, a shift, and the running mean and variance of channels."""

    def _build(
        self,
        channels: int,
        weight_attr: Any,
        bias_attr: Any,
        mean_name: str | None = None,
        variance_name: str | None = None,
        model_average: bool = True,
    ) -> None:
        self.weight, self.bias = self._scale_and_shift(channels, weight_attr, bias_attr)
        self._mean = self._statistic(channels, mean_name, 0.0, model_average)
        self._variance = self._statistic(channels, variance_name, 1.0, model_average)

    def _statistic(self, channels: int, name: str | None, value: float, average: bool) -> Any:
        attr = ParamAttr(
            name=name, initializer=Constant(value), trainable=False, do_model_average=average
        )
        statistic = self.create_parameter([channels], attr=attr)
        statistic.stop_gradient = True
        return statistic


class BatchNorm(_Statistics):
    """Batch norm with an activation and the arguments of Paddle 1.x."""

    def __init__(
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        super().__init__(dtype=dtype)
        self._act = act
        self._is_test = is_test
        self._attrs = {
            "momentum": momentum,
            "epsilon": epsilon,
            "data_layout": data_layout,
            "fuse_with_relu": False,
            "use_global_stats": use_global_stats,
            "trainable_statistics": trainable_statistics,
        }
        self._build(
            num_channels, param_attr, bias_attr, moving_mean_name, moving_variance_name,
            do_model_average_for_mean_and_var,
        )  # fmt: skip

    def forward(self, input: Variable) -> Variable:
        """Normalise and activate."""
        helper = LayerHelper("batch_norm", name=self._full_name, act=self._act)
        outputs = statistics_outputs(helper, self._mean, self._variance, self._dtype)
        outputs["ReserveSpace"] = helper.create_variable_for_type_inference(input.dtype, True)
        outputs["Y"] = out = helper.create_variable_for_type_inference(input.dtype)
        inputs = {"X": input, "Scale": self.weight, "Bias": self.bias}
        inputs |= {"Mean": self._mean, "Variance": self._variance}
        attrs = {**self._attrs, "is_test": self._is_test or not self.training}
        helper.append_op(type="batch_norm", inputs=inputs, outputs=outputs, attrs=attrs)
        return helper.append_activation(out)


class _BatchNorm(_Statistics):
    _ranks: tuple[int, ...] = (4,)
    _formats: tuple[str, ...] = ("NCHW", "NHWC")

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str | None = None,
        use_global_stats: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._momentum, self._epsilon = momentum, epsilon
        self._data_format = data_format or self._formats[0]
        self._use_global_stats = use_global_stats
        check_choice(self._data_format, "data_format", self._formats, type(self).__name__)
        self._build(num_features, weight_attr, bias_attr)

    def forward(self, input: Variable) -> Variable:
        """Normalise."""
        if len(input.shape) not in self._ranks:
            raise ValueError(
                f"{type(self).__name__} takes data of {' or '.join(map(str, self._ranks))} "
                f"dimensions, but got shape {input.shape}."
            )
        parameters = (self._mean, self._variance, self.weight, self.bias)
        settings = (self._momentum, self._epsilon, self._data_format, self._use_global_stats)
        return F.batch_norm(input, *parameters, self.training, *settings)

    def extra_repr(self) -> str:
        """Return the settings."""
        channels = self._mean.shape[0]
        return f"num_features={channels}, momentum={self._momentum}, epsilon={self._epsilon}"


class BatchNorm1D(_BatchNorm):
    """Batch norm of vectors [N, C] or signals [N, C, L]."""

    _ranks = (2, 3)
    _formats = ("NCL", "NC", "NLC")


class BatchNorm2D(_BatchNorm):
    """Batch norm of images."""


class BatchNorm3D(_BatchNorm):
    """Batch norm of volumes."""

    _ranks = (5,)
    _formats = ("NCDHW", "NDHWC")


class SyncBatchNorm(_BatchNorm):
    """Batch norm with the statistics of all workers' batches."""

    _ranks = (2, 3, 4, 5)
    _formats = ("NCHW", "NHWC", "NC", "NCL", "NLC", "NCDHW", "NDHWC")

    @classmethod
    def convert_sync_batchnorm(cls, layer: Layer) -> Layer:
        """Return the layer with every batch norm in it replaced by SyncBatchNorm."""
        if isinstance(layer, _BatchNorm) and not isinstance(layer, SyncBatchNorm):
            new = cls.__new__(cls)
            new.__dict__.update(layer.__dict__)
            return new
        for name, child in list(layer.named_children()):
            layer._sub_layers[name] = cls.convert_sync_batchnorm(child)
        return layer


class LayerNorm(_Affine):
    """Normalises each row over its last dimensions."""

    def __init__(
        self,
        normalized_shape: Any,
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        self._normalized_shape, self._epsilon = shape, epsilon
        self.weight, self.bias = self._scale_and_shift(math.prod(shape), weight_attr, bias_attr)

    def forward(self, input: Variable) -> Variable:
        """Normalise."""
        return F.layer_norm(input, self._normalized_shape, self.weight, self.bias, self._epsilon)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"normalized_shape={self._normalized_shape}, epsilon={self._epsilon}"


class GroupNorm(_Affine):
    """Normalises groups of channels of each instance."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._num_groups, self._epsilon, self._data_format = num_groups, epsilon, data_format
        self.weight, self.bias = self._scale_and_shift(num_channels, weight_attr, bias_attr)

    def forward(self, input: Variable) -> Variable:
        """Normalise."""
        parameters = (self.weight, self.bias, self._data_format, self._full_name)
        return F.group_norm(input, self._num_groups, self._epsilon, *parameters)


class _InstanceNorm(_Affine):
    def __init__(
        self,
        num_features: int,
        epsilon: float = 1e-05,
        momentum: float = 0.9,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._epsilon = epsilon
        self.scale, self.bias = self._scale_and_shift(num_features, weight_attr, bias_attr)

    def forward(self, input: Variable) -> Variable:
        """Normalise."""
        return F.instance_norm(input, weight=self.scale, bias=self.bias, eps=self._epsilon)


class InstanceNorm1D(_InstanceNorm):
    """Normalises each channel of each signal."""


class InstanceNorm2D(_InstanceNorm):
    """Normalises each channel of each image."""


class InstanceNorm3D(_InstanceNorm):
    """Normalises each channel of each volume."""


LocalResponseNorm = layer_of("LocalResponseNorm", F.local_response_norm, base=InputLayer)


class SpectralNorm(Layer):
    """Divides a weight by its largest singular value."""

    def __init__(
        self,
        weight_shape: Any,
        dim: int = 0,
        power_iters: int = 1,
        eps: float = 1e-12,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._attrs = {"dim": dim, "power_iters": power_iters, "eps": eps}
        rows = weight_shape[dim]
        for name, length in (("weight_u", rows), ("weight_v", math.prod(weight_shape) // rows)):
            vector = self.create_parameter([length], default_initializer=Normal(0.0, 1.0))
            vector.stop_gradient = True
            setattr(self, name, vector)

    def forward(self, x: Variable) -> Variable:
        """Return the normalised weight."""
        inputs = {"Weight": x, "U": self.weight_u, "V": self.weight_v}
        return one_op("spectral_norm", inputs, self._attrs, dtype=x.dtype)


export_defined(globals())
