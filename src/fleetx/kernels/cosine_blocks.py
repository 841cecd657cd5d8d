"""Tensors as blocks of cosine coefficients, of which the largest are kept (DeMo).

A tensor is treated as a matrix, with its first dimension as rows; a vector as one row. It is padded
with zeros to whole blocks of at most `size` rows and columns, and each block is transformed by the
orthonormal discrete cosine transform (DCT-II) along both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class Blocks:
    """The division of tensors of one shape into blocks."""

    rows: int
    columns: int
    height: int
    """Rows of a block."""
    width: int
    """Columns of a block."""

    @classmethod
    def of(cls, shape: tuple[int, ...], size: int) -> Blocks:
        """Return the division of a tensor into blocks of at most `size` rows and columns."""
        rows, columns = (
            (1, math.prod(shape)) if len(shape) < 2 else (shape[0], math.prod(shape[1:]))
        )
        return cls(rows, columns, max(1, min(size, rows)), max(1, min(size, columns)))

    @property
    def down(self) -> int:
        """Blocks below each other."""
        return -(-self.rows // self.height)

    @property
    def across(self) -> int:
        """Blocks beside each other."""
        return -(-self.columns // self.width)

    @property
    def count(self) -> int:
        """The number of blocks."""
        return self.down * self.across

    @property
    def entries(self) -> int:
        """Entries of a block."""
        return self.height * self.width

    def coefficients(self, tensor: Tensor) -> Tensor:
        """Return the coefficients of a tensor, a row per block."""
        matrix = tensor.reshape(self.rows, self.columns)
        below = self.down * self.height - self.rows
        beside = self.across * self.width - self.columns
        padded = torch.nn.functional.pad(matrix, (0, beside, 0, below))
        blocks = padded.view(self.down, self.height, self.across, self.width).transpose(1, 2)
        down, across = _transforms(self.height, tensor), _transforms(self.width, tensor)
        return (down @ blocks @ across.T).reshape(self.count, self.entries)

    def tensor(self, coefficients: Tensor, like: Tensor) -> Tensor:
        """Return the tensor of these coefficients, in the shape of `like`."""
        blocks = coefficients.view(self.down, self.across, self.height, self.width)
        down, across = _transforms(self.height, like), _transforms(self.width, like)
        values = (down.T @ blocks @ across).transpose(1, 2)
        matrix = values.reshape(self.down * self.height, self.across * self.width)
        return matrix[: self.rows, : self.columns].reshape(like.shape)

    def kept(self, top_k: int) -> int:
        """Return the number of coefficients of a block to keep."""
        return min(top_k, self.entries)

    def largest(self, coefficients: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
        """Return positions and values of the largest coefficients of each block."""
        found = coefficients.abs().topk(self.kept(top_k), dim=1, sorted=False).indices
        found = found.sort(dim=1).values
        return found, coefficients.gather(1, found)


def _transforms(size: int, like: Tensor) -> Tensor:
    return _cosines(size, like.dtype, like.device)


@lru_cache(maxsize=256)
def _cosines(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the matrix of the orthonormal transform, a row per frequency."""
    places = torch.arange(size, dtype=torch.float64) * 2 + 1
    frequencies = torch.arange(size, dtype=torch.float64).unsqueeze(1)
    matrix = torch.cos(frequencies * places * (math.pi / (2 * size))) * math.sqrt(2 / size)
    matrix[0] *= math.sqrt(0.5)
    return matrix.to(dtype=dtype, device=device)
