"""Attention as one function of queries, keys and values."""

from __future__ import annotations

import math

import numpy as np

from fleetx.static.graph.variable import Variable
from fleetx.static.layers.math import scale
from fleetx.static.layers.tensor import assign, transpose
from fleetx.static.nn.functional.common import dropout
from fleetx.static.nn.functional.emit import binary
from fleetx.static.tensor.common import unary
from fleetx.static.tensor.linalg import matmul


def scaled_dot_product_attention(
    query: Variable,
    key: Variable,
    value: Variable,
    attn_mask: Variable | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    training: bool = True,
    name: str | None = None,
) -> Variable:
    """Return softmax(query key' / sqrt(width) + mask) value.

    Inputs have the shape [batch, length, heads, width]; `is_causal` hides later keys.
    """
    q, k, v = (transpose(x, [0, 2, 1, 3]) for x in (query, key, value))
    scores = matmul(scale(q, 1.0 / math.sqrt(query.shape[-1])), k, transpose_y=True)
    if is_causal:
        scores = binary("elementwise_add", scores, _causal_mask(query.shape[1], key.shape[1]))
    if attn_mask is not None:
        scores = binary("elementwise_add", scores, attn_mask)
    weights = unary("softmax", scores, {"axis": -1})
    if dropout_p:
        weights = dropout(weights, dropout_p, training=training)
    return transpose(matmul(weights, v), [0, 2, 1, 3])


def _causal_mask(queries: int, keys: int) -> Variable:
    if queries < 0 or keys < 0:
        raise ValueError("is_causal needs known lengths; if they vary, pass an attn_mask.")
    return assign(np.triu(np.full((queries, keys), -1e9, dtype="float32"), 1))
