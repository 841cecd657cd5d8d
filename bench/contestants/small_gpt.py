"""A small decoder in the manner of GPT-2, and its batches."""

import torch
from torch import nn

WORDS, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 4096, 256, 4, 6, 64, 4


class Block(nn.Module):
    """Attention over earlier positions and a feed-forward network, with residuals."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """Return the block's output."""
        batch, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    """Blocks one after another; the head shares its weight with the embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        """Return the loss of predicting each next word."""
        given = ids[:, :-1]
        x = self.words(given) + self.places(torch.arange(given.shape[1]))
        for block in self.blocks:
            x = block(x)
        scores = self.norm(x) @ self.words.weight.T
        return nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())


def network():
    """Return the network with the same initial values on every worker."""
    torch.manual_seed(0)
    return Gpt()


def batches(rank):
    """Return the batches of one worker."""
    generator = torch.Generator().manual_seed(rank)
    return [torch.randint(WORDS, (BATCH, LENGTH + 1), generator=generator) for _ in range(8)]


def own_mb(tensors):
    """Return the memory of this worker's shards of tensors."""
    parts = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in parts) / 1e6
