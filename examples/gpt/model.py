"""A small GPT of plain PyTorch modules, with a plan for tensor parallelism."""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal attention. Heads are counted by their width: a worker may have some of them."""

    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix each position with those before it."""
        parts = [part(x) for part in (self.query, self.key, self.value)]
        q, k, v = (part.unflatten(-1, (-1, self.head)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each after a normalisation."""

    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, head)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the block."""
        x = x + self.attention(self.first(x))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """Predicts the next token at every position."""

    tensor_parallel_plan = {
        "blocks.*.attention.out": "rowwise",
        "blocks.*.attention.*": "colwise",
        "blocks.*.up": "colwise",
        "blocks.*.down": "rowwise",
        "words": "embedding",
        "head": "gathered",
    }

    def __init__(self, words: int, length: int, width: int, blocks: int, head: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, head) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token at every position."""
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.words(ids) + self.positions(places))))
