"""SimNet: text matching, learned from pairs of a chosen and a rejected text.

A text is a bag of words: the sum of its rows through softsign and a layer; the score of two texts
is the cosine of their vectors. The loss is 0 if the chosen text leads by `margin`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fleetx.applications.named_layers import linear_weights, named_fc, weight
from fleetx.applications.named_targets import Targets
from fleetx.applications.reading import worker_share
from fleetx.applications.rows import embedding_rows
from fleetx.applications.table_model import TableModel
from fleetx.data import text_triples
from fleetx.data.text_lines import Files
from fleetx.static import layers
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Uniform
from fleetx.static.layers.io import data
from fleetx.static.readers.generator_loader import GeneratorLoader

_TABLE = "__emb__"
_QUERY, _TITLE = "__q_fc__", "__fc__"
_BOUND = 0.1


@dataclass(frozen=True, kw_only=True)
class SimNetSizes:
    """The sizes of the network."""

    words: int = 1451594
    """The size of the vocabulary; word 0 is padding."""
    row: int = 128
    """The length of a word's vector."""
    hidden: int = 128
    """The length of a text's vector."""
    margin: float = 0.1
    """The required lead of the chosen text."""


class TextMatch(nn.Module):
    """The network as a module; `on_servers` makes its rows a `SparseEmbedding`."""

    def __init__(self, sizes: SimNetSizes | None = None, *, on_servers: bool = False) -> None:
        super().__init__()
        sizes = sizes or SimNetSizes()
        self.rows = embedding_rows(
            _TABLE, sizes.words, sizes.row, on_servers=on_servers, bound=_BOUND
        )
        self.query = nn.Linear(sizes.row, sizes.hidden)
        self.title = nn.Linear(sizes.row, sizes.hidden)

    def forward(self, query: Tensor, chosen: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of two titles for queries: word ids [N, *], padded with 0."""
        vector = self._vector(query, self.query)
        first, second = (self._vector(title, self.title) for title in (chosen, other))
        return F.cosine_similarity(vector, first), F.cosine_similarity(vector, second)

    def match(self, query: Tensor, title: Tensor) -> Tensor:
        """Return the scores of titles for queries."""
        return F.cosine_similarity(self._vector(query, self.query), self._vector(title, self.title))

    def _vector(self, ids: Tensor, layer: nn.Module) -> Tensor:
        rows = self.rows(ids) * (ids != 0).unsqueeze(2)
        return layer(F.softsign(rows.sum(1)))


def lead_loss(chosen: Tensor, other: Tensor, margin: float = 0.1) -> Tensor:
    """Return the mean hinge loss of the chosen texts' lead over the others, with `margin`."""
    return torch.relu(margin - chosen + other).mean()


class SimNet(TableModel[SimNetSizes]):
    """The network as a static model; inputs are sequences of words `q`, `pt`, `nt`."""

    default_sizes = SimNetSizes

    def build(self) -> None:
        """Add the network to the default programs."""
        query, chosen, other = (
            data(name, [1], dtype="int64", lod_level=1) for name in ("q", "pt", "nt")
        )
        self.inputs = [query, chosen, other]
        vector = self._vector(query, _QUERY)
        first = layers.cos_sim(vector, self._vector(chosen, _TITLE))
        second = layers.cos_sim(vector, self._vector(other, _TITLE))
        behind = layers.scale(layers.elementwise_sub(second, first), bias=self.sizes.margin)
        self.loss = layers.mean(layers.relu(behind))
        leads = layers.cast(layers.greater_than(first, second), "float32")
        self.target = Targets({"acc": layers.mean(leads)})
        self.checkpoints = [vector.name]
        self.weights = {
            "rows.weight": weight(_TABLE),
            **linear_weights(_QUERY, "query"),
            **linear_weights(_TITLE, "title"),
        }

    def _vector(self, ids: Variable, layer: str) -> Variable:
        attr = ParamAttr(name=_TABLE, initializer=Uniform(-_BOUND, _BOUND))
        rows = layers.embedding(
            ids, [self.sizes.words, self.sizes.row], param_attr=attr, **self._lookup
        )
        total = layers.sequence_pool(rows, "sum")
        return named_fc(layer, layers.softsign(total), self.sizes.hidden)

    def make_module(self) -> nn.Module:
        """Return the same network as a module."""
        return TextMatch(self.sizes)

    def load_reader_from_file(
        self, dict_path: str, file_list: Files, batch_size: int = 128, shuffle: bool = True
    ) -> GeneratorLoader:
        """Return a loader of files with three texts per line: query, chosen, other; tab-separated.

        Args:
            dict_path: one word per line; the line number, from 1, is the word's id.
            file_list: files, or folders of them.
            batch_size: lines per batch.
            shuffle: shuffle the lines, differently in every pass.
        """
        samples = text_triples.reader(
            dict_path, file_list, words=self.sizes.words, shuffle=shuffle, shard=worker_share()
        )
        return self.sample_loader(samples, batch_size)
