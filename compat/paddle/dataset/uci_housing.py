"""The data set `uci_housing`, from local files."""

from fleetx.data.uci_housing import test, train
