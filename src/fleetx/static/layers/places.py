"""Devices as values of a program."""

from __future__ import annotations

from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable

__all__ = ["get_places"]


def get_places(device_count: int | None = None, device_type: str | None = None) -> Variable:
    """Return a variable that holds a list of devices.

    Args:
        device_count: the number of devices; all by default.
        device_type: 'CPU', 'CUDA', or 'AUTO' for CUDA if available.
    """
    helper = LayerHelper("get_places")
    out = helper.main_program.current_block().create_var(
        name=unique_name.generate(f"{helper.name}.out"), type=VarType.PLACE_LIST
    )
    attrs = {"device_count": device_count or 0, "device_type": (device_type or "AUTO").upper()}
    helper.append_op(type="get_places", outputs={"Out": [out]}, attrs=attrs)
    return out
