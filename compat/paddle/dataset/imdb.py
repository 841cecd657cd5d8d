"""The data set `imdb`, from local files."""

from fleetx.data.imdb import build_dict, test, tokenize, train, word_dict
from paddle._coverage import missing

__all__ = ["build_dict", "test", "tokenize", "train", "word_dict"]

__getattr__ = missing(__name__)
