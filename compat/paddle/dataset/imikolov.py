"""The data set `imikolov`, from local files."""

from fleetx.data.imikolov import DataType, build_dict, test, train
from paddle._coverage import missing

__all__ = ["DataType", "build_dict", "test", "train"]

__getattr__ = missing(__name__)
