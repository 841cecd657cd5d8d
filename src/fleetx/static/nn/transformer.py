"""Transformers: multi-head attention, encoder and decoder."""

from __future__ import annotations

import copy
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.dtypes import dtype_name
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.math import scale
from fleetx.static.layers.tensor import cast, reshape, transpose
from fleetx.static.nn import functional as F
from fleetx.static.nn.common import Dropout, Linear
from fleetx.static.nn.container import LayerList
from fleetx.static.nn.functional.emit import binary
from fleetx.static.nn.layer import Layer
from fleetx.static.nn.norm import LayerNorm
from fleetx.static.tensor.linalg import matmul


def _additive(mask: Variable | None, dtype: Any) -> Variable | None:
    """Return an additive mask; positions where a bool or integer mask is 0 are masked."""
    if mask is None or mask.dtype == dtype:
        return mask
    kind = dtype_name(mask.dtype)
    numbers = cast(mask, dtype)
    return scale(numbers, 1e9, -1e9) if kind == "bool" or "int" in kind else numbers


def _attrs(attr: Any, n: int) -> list[Any]:
    """Return n attributes; copies of one with a name get numbered names."""
    if isinstance(attr, list | tuple):
        if len(attr) != n:
            raise ValueError(f"{n} attributes are needed, but {len(attr)} were given.")
        return [ParamAttr._to_attr(a) for a in attr]
    base = ParamAttr._to_attr(attr)
    if base is False:
        return [False] * n
    found = [copy.deepcopy(base) for _ in range(n)]
    for i, one in enumerate(found):
        if one.name:
            one.name = f"{one.name}_{i}"
    return found


class MultiHeadAttention(Layer):
    """Multi-head attention of queries to keys and values."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        need_weights: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(
                f"embed_dim {embed_dim} of MultiHeadAttention must be a multiple of num_heads "
                f"{num_heads}."
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.need_weights = dropout, need_weights
        self.q_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)
        self.k_proj = Linear(kdim or embed_dim, embed_dim, weight_attr, bias_attr)
        self.v_proj = Linear(vdim or embed_dim, embed_dim, weight_attr, bias_attr)
        self.out_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)

    def _heads(self, x: Variable) -> Variable:
        return transpose(reshape(x, [0, 0, self.num_heads, self.head_dim]), [0, 2, 1, 3])

    def forward(
        self,
        query: Variable,
        key: Variable | None = None,
        value: Variable | None = None,
        attn_mask: Variable | None = None,
        cache: None = None,
    ) -> Any:
        """Return the output [batch, length, embed_dim], with the weights if `need_weights`."""
        if cache is not None:
            raise ValueError("MultiHeadAttention does not support a cache: pass whole sequences.")
        key = query if key is None else key
        value = query if value is None else value
        q = self._heads(self.q_proj(query))
        k, v = self.k_proj(key), self.v_proj(value)
        k, v = self._heads(k), self._heads(v)
        scores = matmul(scale(q, self.head_dim**-0.5), k, transpose_y=True)
        mask = _additive(attn_mask, scores.dtype)
        if mask is not None:
            scores = binary("elementwise_add", scores, mask)
        weights = F.softmax(scores)
        if self.dropout:
            weights = F.dropout(weights, self.dropout, training=self.training)
        out = transpose(matmul(weights, v), [0, 2, 1, 3])
        out = self.out_proj(reshape(out, [0, 0, self.embed_dim]))
        return (out, weights) if self.need_weights else out


class _Block(Layer):
    """An encoder or decoder layer: attentions and a feed-forward net with residual connections."""

    _attentions: tuple[str, ...]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        self._config = (
            d_model, nhead, dim_feedforward, dropout, activation, attn_dropout, act_dropout,
            normalize_before, weight_attr, bias_attr,
        )  # fmt: skip
        self.normalize_before = normalize_before
        self.activation = getattr(F, activation)
        n = len(self._attentions) + 1
        weights, biases = _attrs(weight_attr, n), _attrs(bias_attr, n)
        within = dropout if attn_dropout is None else attn_dropout
        for i, name in enumerate(self._attentions):
            attention = MultiHeadAttention(
                d_model, nhead, within, weight_attr=weights[i], bias_attr=biases[i]
            )
            self.add_sublayer(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, weights[-1], biases[-1])
        self.dropout = Dropout(dropout if act_dropout is None else act_dropout)
        self.linear2 = Linear(dim_feedforward, d_model, weights[-1], biases[-1])
        for i in range(1, n + 1):
            self.add_sublayer(f"norm{i}", LayerNorm(d_model))
        for i in range(1, n + 1):
            self.add_sublayer(f"dropout{i}", Dropout(dropout))

    def _short_cut(self, i: int, x: Variable, part: Any) -> Variable:
        """Return x + part(x) with dropout, and the i-th norm before or after it."""
        norm = getattr(self, f"norm{i}")
        inside = part(norm(x) if self.normalize_before else x)
        total = binary("elementwise_add", x, getattr(self, f"dropout{i}")(inside))
        return total if self.normalize_before else norm(total)

    def _feed_forward(self, x: Variable) -> Variable:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Block):
    """Self-attention and a feed-forward network."""

    _attentions = ("self_attn",)

    def forward(self, src: Variable, src_mask: Variable | None = None) -> Variable:
        """Return the encoded sequence."""
        mask = _additive(src_mask, src.dtype)
        src = self._short_cut(1, src, lambda x: self.self_attn(x, x, x, mask))
        return self._short_cut(2, src, self._feed_forward)


class TransformerDecoderLayer(_Block):
    """Self-attention, cross-attention to an encoded sequence, and a feed-forward network."""

    _attentions = ("self_attn", "cross_attn")

    def forward(
        self,
        tgt: Variable,
        memory: Variable,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
    ) -> Variable:
        """Return the decoded sequence."""
        own, other = _additive(tgt_mask, tgt.dtype), _additive(memory_mask, memory.dtype)
        tgt = self._short_cut(1, tgt, lambda x: self.self_attn(x, x, x, own))
        tgt = self._short_cut(2, tgt, lambda x: self.cross_attn(x, memory, memory, other))
        return self._short_cut(3, tgt, self._feed_forward)


class _LayerStack(Layer):
    """Several layers of one configuration, and a norm after them."""

    def __init__(self, layer: Any, num_layers: int, norm: Layer | None) -> None:
        super().__init__()
        copies = [type(layer)(*layer._config) for _ in range(1, num_layers)]
        self.layers = LayerList([layer, *copies][:num_layers])
        self.num_layers = num_layers
        self.norm = norm


class TransformerEncoder(_LayerStack):
    """A stack of encoder layers."""

    def __init__(self, encoder_layer: Any, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(self, src: Variable, src_mask: Variable | None = None) -> Variable:
        """Return the encoded sequence."""
        mask = _additive(src_mask, src.dtype)
        for layer in self.layers:
            src = layer(src, mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_LayerStack):
    """A stack of decoder layers."""

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Variable,
        memory: Variable,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
    ) -> Variable:
        """Return the decoded sequence."""
        own, other = _additive(tgt_mask, tgt.dtype), _additive(memory_mask, memory.dtype)
        for layer in self.layers:
            tgt = layer(tgt, memory, own, other)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Layer):
    """An encoder and a decoder."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
        custom_encoder: Layer | None = None,
        custom_decoder: Layer | None = None,
    ) -> None:
        super().__init__()
        config = (
            d_model, nhead, dim_feedforward, dropout, activation, attn_dropout, act_dropout,
            normalize_before, weight_attr, bias_attr,
        )  # fmt: skip
        self.d_model, self.nhead = d_model, nhead
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*config), num_encoder_layers, LayerNorm(d_model)
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*config), num_decoder_layers, LayerNorm(d_model)
        )

    def forward(
        self,
        src: Variable,
        tgt: Variable,
        src_mask: Variable | None = None,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
    ) -> Variable:
        """Return the decoded target sequence."""
        return self.decoder(tgt, self.encoder(src, src_mask), tgt_mask, memory_mask)


export_defined(globals())
