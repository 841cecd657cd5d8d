"""embedding and one_hot of Paddle 1.8: the last dimension of the input is kept."""

from fleetx.static.layers.nn import embedding_v2 as embedding
from fleetx.static.layers.search import one_hot_v2 as one_hot
