"""The data set `wmt16`, from local files."""

from fleetx.data.wmt16 import fetch, get_dict, test, train, validation
