"""The data set `flowers`, from local files."""

from fleetx.data.flowers import test, train, valid
