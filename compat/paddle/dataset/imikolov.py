"""The data set `imikolov`, from local files."""

from fleetx.data.imikolov import DataType, build_dict, test, train
