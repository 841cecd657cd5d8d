"""Custom lists of amp for PyTorch modules: named ops run in another precision than autocast's.

Ops have Paddle's names, as in programs; each stands for the functions of torch that do the same. A
mode over all calls casts the arguments. It sees the functions that modules and scripts call, not
what these call inside torch (the products inside `multi_head_attention_forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fleetx.techniques.tensors_inside import map_tensors

_FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "batch_norm": (F.batch_norm, torch.batch_norm),
    "conv2d": (F.conv2d, torch.conv2d),
    "conv2d_transpose": (F.conv_transpose2d, torch.conv_transpose2d),
    "conv3d": (F.conv3d, torch.conv3d),
    "cos_sim": (F.cosine_similarity, torch.cosine_similarity),
    "cross_entropy": (F.nll_loss,),
    "cumsum": (torch.cumsum, Tensor.cumsum),
    "dropout": (F.dropout, torch.dropout),
    "elementwise_add": (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__),
    "elementwise_div": (torch.div, Tensor.div, Tensor.__truediv__, torch.true_divide),
    "elementwise_max": (torch.maximum, Tensor.maximum),
    "elementwise_min": (torch.minimum, Tensor.minimum),
    "elementwise_mul": (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__),
    "elementwise_pow": (torch.pow, Tensor.pow, Tensor.__pow__),
    "elementwise_sub": (torch.sub, Tensor.sub, Tensor.__sub__),
    "exp": (torch.exp, Tensor.exp),
    "gelu": (F.gelu,),
    "group_norm": (F.group_norm, torch.group_norm),
    "layer_norm": (F.layer_norm, torch.layer_norm),
    "leaky_relu": (F.leaky_relu,),
    "log": (torch.log, Tensor.log),
    "log_softmax": (F.log_softmax, torch.log_softmax, Tensor.log_softmax),
    "lookup_table": (F.embedding, torch.embedding),
    "matmul": (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm),
    "mean": (torch.mean, Tensor.mean),
    "mul": (F.linear, torch.mm, Tensor.mm, torch.addmm),
    "pool2d": (F.max_pool2d, torch.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d),
    "reduce_sum": (torch.sum, Tensor.sum),
    "relu": (F.relu, torch.relu, Tensor.relu),
    "rsqrt": (torch.rsqrt, Tensor.rsqrt),
    "sigmoid": (torch.sigmoid, Tensor.sigmoid, F.sigmoid),
    "sigmoid_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits,),
    "softmax": (F.softmax, torch.softmax, Tensor.softmax),
    "softmax_with_cross_entropy": (F.cross_entropy,),
    "softplus": (F.softplus,),
    "sqrt": (torch.sqrt, Tensor.sqrt),
    "square": (torch.square, Tensor.square),
    "tanh": (torch.tanh, Tensor.tanh, F.tanh),
}
_SAME = {
    "cross_entropy2": "cross_entropy",
    "lookup_table_v2": "lookup_table",
    "matmul_v2": "matmul",
    "reduce_mean": "mean",
    "sum": "elementwise_add",
}

_FIRST_ONLY = {f for name in ("batch_norm", "group_norm", "layer_norm") for f in _FUNCTIONS[name]}


class CustomPrecision(TorchFunctionMode):
    """Runs white functions in half precision, black ones in single."""

    def __init__(self, white: Iterable[str], black: Iterable[str]) -> None:
        super().__init__()
        self.half = torch.float16
        """The type of half precision; may change between two uses."""
        self._is_half = {**_functions(white, True), **_functions(black, False)}
        self._single: set[int] = set()

    def keep_single(self, parameters: Iterable[Tensor]) -> None:
        """Run functions that take one of these parameters in single precision."""
        self._single |= {id(p) for p in parameters}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_half = self._is_half.get(func)
        if self._single and any(id(x) in self._single for x in (*args, *kwargs.values())):
            is_half = False
        if is_half is None:
            return func(*args, **kwargs)
        dtype = self.half if is_half else torch.float32

        def cast(x: Tensor) -> Tensor:
            return x if x.dtype == torch.float64 else x.to(dtype)

        if func in _FIRST_ONLY:  # the rest are statistics, changed in place, and small factors
            args = (map_tensors(args[0], cast), *args[1:])
        else:
            args, kwargs = map_tensors((args, kwargs), cast)
        device = next((x.device.type for x in args if isinstance(x, Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            return func(*args, **kwargs)


def _functions(names: Iterable[str], is_half: bool) -> dict[Callable[..., Any], bool]:
    found: dict[Callable[..., Any], bool] = {}
    for name in names:
        known = _FUNCTIONS.get(_SAME.get(name, name))
        if known is None:
            raise ValueError(
                f"amp does not know a torch function for the op {name!r} in its custom lists; it "
                f"knows {', '.join(sorted({*_FUNCTIONS, *_SAME}))}."
            )
        found.update(dict.fromkeys(known, is_half))
    return found
