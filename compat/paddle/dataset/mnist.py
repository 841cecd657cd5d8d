"""The data set `mnist`, from local files."""

from fleetx.data.mnist import reader_creator, test, train

__all__ = ["reader_creator", "test", "train"]
