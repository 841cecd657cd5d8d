"""The Transformer for translation as a module: Vaswani et al., "Attention Is All You Need", 2017.

`torch.nn.Transformer` with pre-normalisation; one embedding for the words of both languages, which
is also the output layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class TransformerSizes:
    """The sizes of a Transformer."""

    words: int = 33712
    """The size of the vocabulary of both languages."""
    width: int = 512
    """The length of a token's vector."""
    heads: int = 8
    """The number of attention heads, which divides `width`."""
    inner: int = 2048
    """The width of the feed-forward layer."""
    layers: int = 6
    """The number of layers of the encoder, and of the decoder."""
    longest: int = 256
    """The maximum length of a sentence."""
    dropout: float = 0.1
    """The dropout probability."""
    smoothing: float = 0.1
    """The label smoothing."""

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2:
            raise ValueError(
                f"width={self.width} of a Transformer must be even and a multiple of "
                f"heads={self.heads}."
            )


def waves(longest: int, width: int) -> np.ndarray:
    """Return the positional encoding: sines, then cosines, of wavelengths from 2*pi to 20000*pi."""
    lengths = np.power(1e4, np.arange(width // 2) / max(width // 2 - 1, 1))
    angles = np.arange(longest)[:, None] / lengths
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")


class TranslationTransformer(nn.Module):
    """A model of the next word of a translation."""

    tensor_parallel_plan: ClassVar[dict[str, str]] = {
        "*.linear1": "colwise",
        "*.linear2": "rowwise",
        "*coder.layers.0": "split",
        "*.norm?": "sequence",
        "*.dropout?": "sequence",
        "*_attn": "repeated",
        "*coder.norm": "joined",
    }
    """Feed-forward layers are sharded; the projections of `nn.MultiheadAttention` are one
    parameter, and the table is used as a function's argument."""
    positions: Tensor

    def __init__(self, sizes: TransformerSizes | None = None) -> None:
        super().__init__()
        sizes = sizes or TransformerSizes()
        self.sizes = sizes
        self.words = nn.Embedding(sizes.words, sizes.width)
        nn.init.normal_(self.words.weight, std=sizes.width**-0.5)
        self.dropout = nn.Dropout(sizes.dropout)
        shape = (sizes.width, sizes.heads, sizes.inner, sizes.dropout)
        layer = nn.TransformerEncoderLayer(*shape, batch_first=True, norm_first=True)
        # Created here, because nn.Transformer would use nested tensors, which exclude norm_first.
        encoder = nn.TransformerEncoder(
            layer, sizes.layers, nn.LayerNorm(sizes.width), enable_nested_tensor=False
        )
        self.transformer = nn.Transformer(
            sizes.width,
            sizes.heads,
            num_decoder_layers=sizes.layers,
            dim_feedforward=sizes.inner,
            dropout=sizes.dropout,
            custom_encoder=encoder,
            batch_first=True,
            norm_first=True,
        )
        table = torch.from_numpy(waves(sizes.longest, sizes.width))
        self.register_buffer("positions", table, persistent=False)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_padding: Tensor | None = None,
        target_padding: Tensor | None = None,
    ) -> Tensor:
        """Return scores [N, T, words] of the word after each word of the target.

        Args:
            source: word ids [N, S].
            target: word ids [N, T], starting with the start symbol.
            source_padding: True for the padding of the source.
            target_padding: True for the padding of the target.
        """
        length = target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        out = self.transformer(
            self._embed(source),
            self._embed(target),
            tgt_mask=later,
            src_key_padding_mask=source_padding,
            memory_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
        )
        return F.linear(out, self.words.weight)

    def loss(self, scores: Tensor, label: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return the smoothed cross entropy per word; `padding` is ignored."""
        if padding is not None:
            label = label.masked_fill(padding, -100)
        return F.cross_entropy(
            scores.flatten(0, 1), label.flatten(), label_smoothing=self.sizes.smoothing
        )

    def _embed(self, ids: Tensor) -> Tensor:
        if ids.shape[1] > self.sizes.longest:
            raise ValueError(
                f"a sentence has {ids.shape[1]} tokens, but the model is for {self.sizes.longest}: "
                f"create it with TransformerSizes(longest={ids.shape[1]})."
            )
        scaled = self.words(ids) * math.sqrt(self.sizes.width)
        return self.dropout(scaled + self.positions[: ids.shape[1]])
