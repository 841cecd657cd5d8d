"""A small decoder as a sequence of layers, whose projections can be sharded."""

import torch
from torch import nn

WORDS, WIDTH, HEAD, LAYERS, LENGTH = 4096, 256, 64, 6, 64
PLAN = {
    "*.query": "colwise",
    "*.key": "colwise",
    "*.value": "colwise",
    "*.out": "rowwise",
    "*.wide": "colwise",
    "*.narrow": "rowwise",
}


class Enter(nn.Module):
    """Embeddings of words and positions."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, ids):
        """Return the input of the first block."""
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))


class Block(nn.Module):
    """Attention over earlier positions and a feed-forward network; heads are counted by width."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """Return the block's output."""
        normed = self.norm1(x)
        parts = [each(normed) for each in (self.query, self.key, self.value)]
        heads = (part.unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in parts)
        seen = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))


class Leave(nn.Module):
    """Scores of the next words."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        """Return the scores."""
        return self.head(self.norm(x))


def network():
    """Return the layers with the same initial values on every worker."""
    torch.manual_seed(0)
    return nn.Sequential(Enter(), *(Block() for _ in range(LAYERS)), Leave())


def loss_of(scores, targets):
    """Return the loss of predicting each next word."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def batches(size, copy=0):
    """Return the batches of one copy of the model, as inputs and targets."""
    generator = torch.Generator().manual_seed(copy)
    drawn = [torch.randint(WORDS, (size, LENGTH + 1), generator=generator) for _ in range(8)]
    return [(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()) for ids in drawn]
