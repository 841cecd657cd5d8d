"""Tensors of which every worker holds a part (torch's DTensor), as whole tensors and back.

Asking for an attribute tells them apart, so that jobs without them do not import DTensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def is_divided(tensor: Any) -> bool:
    """Return whether each worker holds a part of a tensor."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "placements")


def own_part(tensor: Any) -> Any:
    """Return this worker's part of a divided tensor, in the same memory; others as they are."""
    return tensor.to_local() if is_divided(tensor) else tensor


def whole(value: Any) -> Any:
    """Return a divided tensor as a whole, on all workers at once; other values as they are."""
    return value.full_tensor() if is_divided(value) else value


_SHAPE = "_fleetx_shape"  # on tensors that other workers have: the shape they have there


def leave_to_others(tensor: Tensor) -> None:
    """Drop the elements of a tensor that other workers have."""
    setattr(tensor, _SHAPE, tensor.shape)
    tensor.data = tensor.data.new_empty(0)


def is_elsewhere(tensor: Tensor) -> bool:
    """Return whether only other workers have the elements of a tensor."""
    return hasattr(tensor, _SHAPE)


def shape_elsewhere(tensor: Tensor) -> torch.Size:
    """Return the shape of a tensor, on the workers that have it."""
    return getattr(tensor, _SHAPE, tensor.shape)


def whole_of_part(part: Tensor, other: Any) -> Tensor:
    """Return the whole of which this worker has a part, divided as another tensor is; all workers
    must call it."""
    from torch.distributed.tensor import DTensor

    made = DTensor.from_local(
        part,
        other.device_mesh,
        other.placements,
        run_check=False,
        shape=other.shape,
        stride=other.stride(),
    )
    result: Tensor = made.full_tensor()
    return result


def divided_like(value: Tensor, other: Any) -> Tensor:
    """Return a whole tensor, which all workers have, divided as another one is."""
    if is_divided(value) or not is_divided(other):
        return value
    # Not at the top: PyTorch 2.4 does not have it, and divides nothing.
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(
        value.to(other.device), other.device_mesh, other.placements, src_data_rank=None
    )


def shape_of_layer(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape that a parameter has on this worker while its layer computes: a part of it
    where workers divide layers (mp), all of it where they only divide what is kept."""
    shape = list(tensor.shape)
    if is_divided(tensor):
        mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
        for axis, placement in zip(mesh.mesh_dim_names or (), tensor.placements, strict=False):  # type: ignore[attr-defined]
            if axis == "mp" and placement.is_shard():
                each = -(-shape[placement.dim] // mesh["mp"].size())
                place = mesh["mp"].get_local_rank()
                shape[placement.dim] = max(0, min(each, shape[placement.dim] - place * each))
    return tuple(shape)
