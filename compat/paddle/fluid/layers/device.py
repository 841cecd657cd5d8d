"""Devices that a program could run on."""

from fleetx.static.run.place import Place, cpu_places, cuda_places

__all__ = ["get_places"]


def get_places(device_count: int | None = None, device_type: str | None = None) -> list[Place]:
    """Return the first `device_count` places of a type ("CPU" or "CUDA")."""
    if device_type == "CUDA":
        return list(cuda_places(None if device_count is None else list(range(device_count))))
    return list(cpu_places(device_count))
