"""Functions of matrices."""

from fleetx.static.tensor import cholesky, det, matrix_power, norm, solve
from fleetx.static.tensor import inverse as inv
from paddle._coverage import missing

__all__ = ["cholesky", "det", "inv", "matrix_power", "norm", "solve"]

__getattr__ = missing(__name__)
