"""Readers of well-known data sets, from local files; an error says where to put them."""

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
