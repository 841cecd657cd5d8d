"""The data set `uci_housing`, from local files."""

from fleetx.data.uci_housing import test, train
from paddle.dataset._fetching import fetch_of

fetch = fetch_of(train, test)
