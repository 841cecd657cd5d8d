"""Activation layers."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer import Layer
from fleetx.static.nn.layer_of import FunctionLayer, layer_of


class _Activation(FunctionLayer):
    def extra_repr(self) -> str:
        """Return the settings."""
        return ", ".join(str(s) for s in self._settings.values())


CELU = layer_of("CELU", F.celu, base=_Activation)
ELU = layer_of("ELU", F.elu, base=_Activation)
GELU = layer_of("GELU", F.gelu, base=_Activation)
GLU = layer_of("GLU", F.glu, base=_Activation)
Hardshrink = layer_of("Hardshrink", F.hardshrink, base=_Activation)
Hardsigmoid = layer_of("Hardsigmoid", F.hardsigmoid, base=_Activation, arguments="name")
Hardswish = layer_of("Hardswish", F.hardswish, base=_Activation)
Hardtanh = layer_of("Hardtanh", F.hardtanh, base=_Activation)
LeakyReLU = layer_of("LeakyReLU", F.leaky_relu, base=_Activation)
LogSigmoid = layer_of("LogSigmoid", F.log_sigmoid, base=_Activation)
LogSoftmax = layer_of("LogSoftmax", F.log_softmax, base=_Activation, arguments="axis name")
Maxout = layer_of("Maxout", F.maxout, base=_Activation)
Mish = layer_of("Mish", F.mish, base=_Activation)
ReLU = layer_of("ReLU", F.relu, base=_Activation)
ReLU6 = layer_of("ReLU6", F.relu6, base=_Activation)
SELU = layer_of("SELU", F.selu, base=_Activation)
Sigmoid = layer_of("Sigmoid", F.sigmoid, base=_Activation)
Silu = layer_of("Silu", F.silu, base=_Activation)
SiLU = Silu
Softmax = layer_of("Softmax", F.softmax, base=_Activation, arguments="axis name")
Softplus = layer_of("Softplus", F.softplus, base=_Activation)
Softshrink = layer_of("Softshrink", F.softshrink, base=_Activation)
Softsign = layer_of("Softsign", F.softsign, base=_Activation)
Swish = layer_of("Swish", F.swish, base=_Activation)
Tanh = layer_of("Tanh", F.tanh, base=_Activation)
Tanhshrink = layer_of("Tanhshrink", F.tanhshrink, base=_Activation)
ThresholdedReLU = layer_of("ThresholdedReLU", F.thresholded_relu, base=_Activation)


class PReLU(Layer):
    """x where positive, a learnable multiple of x elsewhere."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        weight_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._data_format = data_format
        self._weight = self.create_parameter(
            [num_parameters], attr=weight_attr, default_initializer=Constant(init)
        )

    def forward(self, x: Variable) -> Variable:
        """Apply the function."""
        return F.prelu(x, self._weight, self._data_format)


export_defined(globals())
