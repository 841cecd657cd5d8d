"""Functions of matrices."""

from fleetx.static.tensor import cholesky, det, matrix_power, norm, solve
from fleetx.static.tensor import inverse as inv
