"""Further layers."""

from fleetx.static.layers.contrib import fused_embedding_seq_pool
from paddle._coverage import missing

__all__ = ["fused_embedding_seq_pool"]

__getattr__ = missing(__name__)
