"""Settings and objects that the rest of the package shares."""

import contextlib
from typing import Any

import torch

from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.block import Block
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.io.objects import load_object, save_object
from fleetx.static.layers import create_parameter
from fleetx.static.nn import LayerList
from fleetx.static.run.place import CPUPlace, CUDAPinnedPlace, CUDAPlace
from fleetx.static.tensor.common import get_default_dtype, set_default_dtype
from paddle._coverage import exported
from paddle.fluid import core
from paddle.fluid.framework import get_flags, set_flags


def seed(seed: int) -> torch.Generator:
    """Seed the random ops of all programs without a seed."""
    return torch.manual_seed(int(seed))


def enable_static() -> None:
    """Do nothing: layers always append to programs."""


def disable_static(place: Any = None) -> None:
    """Raise an error: there is no eager mode."""
    raise RuntimeError(
        "paddle.disable_static() enables eager mode, which FleetX leaves to PyTorch: write the "
        "model as torch.nn.Module, or call paddle.enable_static() and build a program."
    )


def in_dynamic_mode() -> bool:
    """Return False: there is no eager mode."""
    return False


in_dygraph_mode = in_dynamic_mode


class no_grad(contextlib.ContextDecorator):
    """Change nothing, as in Paddle's static mode: programs mark variables by `stop_gradient`."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *error: object) -> None:
        """End."""


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    sci_mode: bool | None = None,
    linewidth: int | None = None,
) -> None:
    """Do nothing: the options are for eager tensors; NumPy prints fetched arrays."""


def get_cuda_rng_state() -> list[Any]:
    """Return the state of each GPU's random generator."""
    return torch.cuda.get_rng_state_all()


def set_cuda_rng_state(state_list: list[Any]) -> None:
    """Set the state of each GPU's random generator."""
    gpus = torch.cuda.device_count()
    if len(state_list) != gpus:
        raise ValueError(
            f"set_cuda_rng_state takes a state per GPU: {gpus}, not {len(state_list)}; "
            "get_cuda_rng_state returns them."
        )
    torch.cuda.set_rng_state_all(state_list)


def load(path: str, **configs: Any) -> Any:
    """Return the content of a `.pdparams` or `.pdopt` file: arrays by name."""
    keep = bool(configs.get("keep_name_table", False))
    return load_object(path, keep_name_table=keep)


def save(obj: Any, path: str, protocol: int = 4, **configs: Any) -> None:
    """Write arrays by name (and numbers, lists, dictionaries of them) to a file."""
    save_object(obj, path, protocol)


__all__ = exported(globals(), without="in_dygraph_mode load_object save_object")
