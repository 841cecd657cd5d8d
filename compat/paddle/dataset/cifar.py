"""The data set `cifar`, from local files."""

from fleetx.data.cifar import test10, test100, train10, train100
