"""The data set `wmt14`, from local files."""

from fleetx.data.wmt14 import gen, get_dict, test, train
