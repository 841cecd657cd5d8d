"""The data set `mnist`, from local files."""

from fleetx.data.mnist import reader_creator, test, train
from paddle.dataset._fetching import fetch_of

__all__ = ["reader_creator", "test", "train"]

fetch = fetch_of(train, test)
