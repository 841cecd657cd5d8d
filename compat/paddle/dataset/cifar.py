"""The data set `cifar`, from local files."""

from fleetx.data.cifar import test10, test100, train10, train100
from paddle._coverage import missing

__all__ = ["test10", "test100", "train10", "train100"]

__getattr__ = missing(__name__)
