"""The data set `mnist`, from local files."""

from fleetx.data.mnist import test, train
