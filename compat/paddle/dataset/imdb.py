"""The data set `imdb`, from local files."""

from fleetx.data.imdb import build_dict, test, tokenize, train, word_dict
