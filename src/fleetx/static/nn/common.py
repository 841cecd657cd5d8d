"""Linear, Embedding, Dropout, Flatten, padding, resizing and other common layers."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import convert_to_list
from fleetx.static.nn import functional as F
from fleetx.static.nn.functional.emit import pairwise_norm
from fleetx.static.nn.layer import Layer
from fleetx.static.nn.layer_of import InputLayer, Spatial, layer_of
from fleetx.static.tensor.manipulation import flatten


class Identity(Layer):
    """Returns its input."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Variable) -> Variable:
        """Return the input."""
        return input


class Linear(Layer):
    """Applies a linear map to the last dimension: x weight + bias."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = self.create_parameter([in_features, out_features], attr=weight_attr)
        self.bias = self.create_parameter([out_features], attr=bias_attr, is_bias=True)
        self.name = name

    def forward(self, input: Variable) -> Variable:
        """Apply the linear map to the last dimension."""
        return F.linear(input, self.weight, self.bias, self.name)

    def extra_repr(self) -> str:
        """Return the sizes."""
        inputs, outputs = self.weight.shape
        return f"in_features={inputs}, out_features={outputs}"


class Bilinear(Layer):
    """Applies a bilinear map: x1 W_i x2 + bias for each of `out_features` matrices."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        shape = [out_features, in1_features, in2_features]
        self.weight = self.create_parameter(shape, attr=weight_attr)
        self.bias = self.create_parameter([1, out_features], attr=bias_attr, is_bias=True)

    def forward(self, x1: Variable, x2: Variable) -> Variable:
        """Apply the bilinear map to pairs of rows."""
        return F.bilinear(x1, x2, self.weight, self.bias)


class Embedding(Layer):
    """Looks up rows of a learnable table by integer ids."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        sparse: bool = False,
        weight_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if num_embeddings <= 0 or embedding_dim <= 0:
            raise ValueError(
                f"Embedding needs positive sizes, not {num_embeddings} and {embedding_dim}."
            )
        self._padding_idx = padding_idx
        self._sparse = sparse
        self.weight = self.create_parameter([num_embeddings, embedding_dim], attr=weight_attr)

    def forward(self, x: Variable) -> Variable:
        """Look up ids of any shape."""
        return F.embedding(x, self.weight, self._padding_idx, self._sparse)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return ", ".join(str(d) for d in self.weight.shape)


class Dropout(Layer):
    """Zeroes elements at random in training."""

    def __init__(
        self,
        p: float = 0.5,
        axis: Any = None,
        mode: str = "upscale_in_train",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.p, self.axis, self.mode = p, axis, mode

    def forward(self, input: Variable) -> Variable:
        """Apply dropout."""
        return F.dropout(input, self.p, self.axis, self.training, self.mode)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"p={self.p}, axis={self.axis}, mode={self.mode}"


class _ChannelDropout(Spatial):
    def __init__(self, p: float = 0.5, data_format: str = "NCHW", name: str | None = None) -> None:
        super().__init__()
        self.p, self.data_format = p, data_format

    def forward(self, input: Variable) -> Variable:
        """Apply dropout to channels."""
        drop = F.dropout2d if self._axes == 2 else F.dropout3d
        return drop(input, self.p, self.training, self.data_format)


class Dropout2D(_ChannelDropout, axes=2):
    """Zeroes whole channels of images at random in training."""


class Dropout3D(_ChannelDropout, axes=3):
    """Zeroes whole channels of volumes at random in training."""


class AlphaDropout(Layer):
    """Drops elements to SELU's lower limit at random in training."""

    def __init__(self, p: float = 0.5, name: str | None = None) -> None:
        super().__init__()
        self.p = p

    def forward(self, input: Variable) -> Variable:
        """Apply alpha dropout."""
        return F.alpha_dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        """Return the probability."""
        return f"p={self.p}"


class PairwiseDistance(Layer):
    """Computes the p-norm of the difference of two vectors."""

    def __init__(
        self,
        p: float = 2.0,
        epsilon: float = 1e-6,
        keepdim: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.p, self.epsilon, self.keepdim = p, epsilon, keepdim

    def forward(self, x: Variable, y: Variable) -> Variable:
        """Return the distance of each row of x to that of y."""
        return pairwise_norm(x, y, self.p, self.epsilon, keepdim=self.keepdim)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"p={self.p}, epsilon={self.epsilon}, keepdim={self.keepdim}"


class Flatten(Layer):
    """Flattens a range of dimensions into one."""

    def __init__(self, start_axis: int = 1, stop_axis: int = -1) -> None:
        super().__init__()
        self.start_axis, self.stop_axis = start_axis, stop_axis

    def forward(self, input: Variable) -> Variable:
        """Flatten the dimensions from `start_axis` to `stop_axis`."""
        rank = len(input.shape)
        return flatten(input, self.start_axis % rank, self.stop_axis % rank)


class _Pad(Spatial):
    def __init__(
        self,
        padding: Any,
        mode: str = "constant",
        value: float = 0.0,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._pad: Any = padding
        if not isinstance(padding, Variable):
            self._pad = convert_to_list(padding, 2 * self._axes, "padding")
        self._mode, self._value, self._data_format = mode, value, data_format

    def forward(self, x: Variable) -> Variable:
        """Pad the spatial dimensions."""
        return F.pad(x, self._pad, self._mode, self._value, self._data_format)


class Pad1D(_Pad, axes=1):
    """Pads signals: left, right."""


class Pad2D(_Pad, axes=2):
    """Pads images: left, right, top, bottom."""


class Pad3D(_Pad, axes=3):
    """Pads volumes: left, right, top, bottom, front, back."""


class ZeroPad2D(_Pad):
    """Pads images with zeros: left, right, top, bottom."""

    def __init__(self, padding: Any, data_format: str = "NCHW", name: str | None = None) -> None:
        super().__init__(padding, "constant", 0.0, data_format, name)


Upsample = layer_of("Upsample", F.interpolate)
UpsamplingNearest2D = layer_of(
    "UpsamplingNearest2D", F.interpolate, arguments="size scale_factor data_format name"
)
UpsamplingBilinear2D = layer_of(
    "UpsamplingBilinear2D",
    F.interpolate,
    arguments="size scale_factor data_format name",
    fixed={"mode": "bilinear", "align_corners": True},
)
PixelShuffle = layer_of("PixelShuffle", F.pixel_shuffle)
PixelUnshuffle = layer_of("PixelUnshuffle", F.pixel_unshuffle)
ChannelShuffle = layer_of("ChannelShuffle", F.channel_shuffle)
_WINDOWS = "kernel_sizes dilations paddings strides name"
Unfold = layer_of("Unfold", F.unfold, base=InputLayer, arguments=_WINDOWS)
Fold = layer_of("Fold", F.fold, base=InputLayer, arguments=f"output_sizes {_WINDOWS}")


class CosineSimilarity(Layer):
    """Computes the cosine similarity of two tensors along an axis."""

    def __init__(self, axis: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self._axis, self._eps = axis, eps

    def forward(self, x1: Variable, x2: Variable) -> Variable:
        """Return the cosine similarity."""
        return F.cosine_similarity(x1, x2, self._axis, self._eps)


export_defined(globals())
