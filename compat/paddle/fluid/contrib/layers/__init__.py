"""Further layers."""

from fleetx.static.layers.contrib import fused_embedding_seq_pool, partial_concat, partial_sum
from paddle._coverage import missing

__all__ = ["fused_embedding_seq_pool", "partial_concat", "partial_sum"]

__getattr__ = missing(__name__)
