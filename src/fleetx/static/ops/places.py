"""The op that lists devices."""

from __future__ import annotations

from fleetx.comm import device
from fleetx.static.graph.op_registry import detached_op, no_infer
from fleetx.static.run.place import CPUPlace, CUDAPlace, Place, cpu_places


@detached_op("get_places", inputs="", infer=no_infer)
def get_places(*, device_count: int = 0, device_type: str = "AUTO") -> list[Place]:
    """Return `device_count` devices of a kind, or all."""
    cuda = device.gpu_count()
    if device_type == "CUDA" or (device_type == "AUTO" and cuda):
        return [CUDAPlace(i) for i in range(device_count or cuda)]
    return [CPUPlace() for _ in range(device_count or len(cpu_places()))]
