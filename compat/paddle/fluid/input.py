"""embedding and one_hot of Paddle 1.8: the last dimension of the input is kept."""

from fleetx.static.layers.nn import embedding_v2 as embedding
from fleetx.static.layers.search import one_hot_v2 as one_hot
from paddle._coverage import missing

__all__ = ["embedding", "one_hot"]

__getattr__ = missing(__name__)
