"""Readers of well-known data sets, from local files; an error says where to put them."""

from paddle._coverage import missing
from paddle.dataset import (
    cifar,
    common,
    flowers,
    image,
    imdb,
    imikolov,
    mnist,
    movielens,
    uci_housing,
)

__getattr__ = missing(__name__)
