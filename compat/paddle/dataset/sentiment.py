"""The data set `sentiment`, from local files."""

from fleetx.data.sentiment import get_word_dict, test, train
