"""The data set `flowers`, from local files."""

from fleetx.data.flowers import test, train, valid
from paddle._coverage import missing

__all__ = ["test", "train", "valid"]

__getattr__ = missing(__name__)
