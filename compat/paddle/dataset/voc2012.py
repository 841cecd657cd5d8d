"""The data set `voc2012`, from local files."""

from fleetx.data.voc2012 import test, train, val
