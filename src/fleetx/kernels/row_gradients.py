"""Sparse gradients: the gradient of a table consists of the rows of the ids looked up.

It is a torch sparse tensor with one sparse dimension, as look-ups with `sparse` create it (Paddle's
SelectedRows). The values of a row that occurs several times are summed. No function allocates
memory of the table's size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.kernels import native
from fleetx.kernels.index import merge_rows

_COMPILED = (torch.float32, torch.float64)


def make_rows(ids: Tensor, values: Tensor, height: int) -> Tensor:
    """Return the gradient with these rows of a table with `height` rows."""
    shape = (height, *values.shape[1:])
    return torch.sparse_coo_tensor(ids.reshape(1, -1), values, shape, check_invariants=False)


def rows_of(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return ids and values; an id may occur several times."""
    return torch_private.sparse_indices(grad)[0], torch_private.sparse_values(grad)


def merge(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return ids and values, each id once, with the sum of its values."""
    ids, values = rows_of(grad)
    if values.is_cpu:
        found, sums, _ = merge_rows(ids, values)
        return found, sums
    found, places = torch.unique(ids, return_inverse=True)
    return found, values.new_zeros(len(found), *values.shape[1:]).index_add_(0, places, values)


def merged(grad: Tensor) -> Tensor:
    """Return the same gradient with each row once."""
    return make_rows(*merge(grad), len(grad))


def with_values(grad: Tensor, values: Tensor) -> Tensor:
    """Return a gradient with the same rows and other values."""
    return make_rows(rows_of(grad)[0], values, len(grad))


def add_up(grads: Sequence[Tensor]) -> Tensor:
    """Return the sum of gradients of one table."""
    parts = [rows_of(grad) for grad in grads]
    ids, values = (torch.cat(column) for column in zip(*parts, strict=True))
    return make_rows(ids, values, len(grads[0]))


def add_scaled_(param: Tensor, grad: Tensor, scale: float) -> Tensor:
    """Add the scaled values to the rows of a table, one after the other."""
    ids, values = rows_of(grad)
    if param.is_cpu and param.is_contiguous() and param.dtype is values.dtype in _COMPILED:
        native.add_rows(
            ids.contiguous().numpy(), (values * scale).contiguous().numpy(), param.numpy()
        )
        return param
    return param.index_add_(0, ids, values, alpha=scale)


def update_rows(
    tensors: Sequence[Tensor], grad: Tensor, update: Callable[[list[Tensor], Tensor], object]
) -> None:
    """Update only the rows of a gradient, in tensors of the table's height.

    `update` changes copies of these rows in place, given the rows' gradients.
    """
    ids, values = merge(grad)
    ids = ids.to(tensors[0].device)
    parts = [tensor.index_select(0, ids) for tensor in tensors]
    update(parts, values)
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.index_copy_(0, ids, part)
