"""Word2vec: Mikolov et al., "Distributed Representations of Words and Phrases", 2013.

Skip-gram: a word predicts a neighbour among noise words. The noise is part of the data
(`neg_label`), so that a step is the same on every engine; the loss is noise-contrastive estimation
as negative sampling: binary, with the neighbour as 1 and noise as 0.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from shlex import join
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fleetx.applications.named_layers import weight
from fleetx.applications.reading import worker_share
from fleetx.applications.rows import embedding_rows
from fleetx.applications.table_model import TableModel
from fleetx.data import word2vec as skip_grams
from fleetx.data.text_lines import Files, list_files
from fleetx.static import layers
from fleetx.static.initializer import Constant, Uniform
from fleetx.static.layers.io import static_data
from fleetx.static.readers.file_datasets import QueueDataset
from fleetx.static.readers.generator_loader import GeneratorLoader

_WORDS, _OUTPUT, _SHIFT = "emb", "emb_w", "emb_b"


@dataclass(frozen=True, kw_only=True)
class Word2vecSizes:
    """The sizes of the tables."""

    words: int = 354051
    """The size of the vocabulary."""
    row: int = 300
    """The length of a word's vector."""
    noise: int = 5
    """The number of noise words per pair."""

    @property
    def bound(self) -> float:
        """The maximum initial value of a vector."""
        return 0.5 / self.row


class SkipGram(nn.Module):
    """The network as a module; `on_servers` makes its tables `SparseEmbedding`s."""

    def __init__(self, sizes: Word2vecSizes | None = None, *, on_servers: bool = False) -> None:
        super().__init__()
        sizes = sizes or Word2vecSizes()
        self.words = embedding_rows(
            _WORDS, sizes.words, sizes.row, on_servers=on_servers, bound=sizes.bound
        )
        self.outputs = embedding_rows(
            _OUTPUT, sizes.words, sizes.row, on_servers=on_servers, bound=sizes.bound
        )
        self.shifts = embedding_rows(_SHIFT, sizes.words, 1, on_servers=on_servers, bound=0.0)

    def forward(self, word: Tensor, neighbour: Tensor, noise: Tensor) -> Tensor:
        """Return scores [N, 1 + noise] of words [N], neighbours [N] and noise [N, noise]."""
        others = torch.cat([neighbour.reshape(-1, 1), noise], dim=1)
        vector = self.words(word.reshape(-1)).unsqueeze(2)
        return (self.outputs(others) @ vector + self.shifts(others)).squeeze(2)


def noise_contrast(scores: Tensor) -> Tensor:
    """Return the loss of scores with the neighbour in column 0: summed per pair, averaged."""
    wanted = torch.zeros_like(scores)
    wanted[:, 0] = 1.0
    return F.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") / len(scores)


class Word2vec(TableModel[Word2vecSizes]):
    """Skip-gram as a static model; inputs `input_word`, `true_label` [N, 1] and `neg_label`."""

    default_sizes = Word2vecSizes

    def build(self) -> None:
        """Add the network to the default programs."""
        word = static_data("input_word", [None, 1], "int64")
        neighbour = static_data("true_label", [None, 1], "int64")
        noise = static_data("neg_label", [None, self.sizes.noise], "int64")
        self.inputs = [word, neighbour, noise]
        others = layers.concat([neighbour, noise], axis=1)
        shape = [self.sizes.words, self.sizes.row]
        uniform = Uniform(-self.sizes.bound, self.sizes.bound)
        vector = self.rows(_WORDS, word, shape, uniform)
        outputs = self.rows(_OUTPUT, others, shape, uniform)
        shifts = self.rows(_SHIFT, others, [self.sizes.words, 1], Constant(0.0))
        scores = layers.squeeze(
            layers.elementwise_add(layers.matmul(outputs, vector, transpose_y=True), shifts), [2]
        )
        wanted = layers.concat([layers.ones_like(neighbour), layers.zeros_like(noise)], axis=1)
        costs = layers.sigmoid_cross_entropy_with_logits(scores, layers.cast(wanted, "float32"))
        self.loss = layers.mean(layers.reduce_sum(costs, dim=1))
        self.checkpoints = [scores.name]
        self.weights = {
            "words.weight": weight(_WORDS),
            "outputs.weight": weight(_OUTPUT),
            "shifts.weight": weight(_SHIFT),
        }

    def make_module(self) -> nn.Module:
        """Return the same network as a module."""
        return SkipGram(self.sizes)

    def load_reader_from_file(
        self,
        dict_path: str,
        file_list: Files,
        window_size: int = 5,
        nce_num: int = 5,
        batch_size: int = 1000,
    ) -> GeneratorLoader:
        """Return a loader of text, a sentence per line, shuffled differently in every pass.

        Args:
            dict_path: lines "word count".
            file_list: files, or folders of them.
            window_size: the maximum distance between the words of a pair.
            nce_num: the number of noise words per pair; the same as the model's.
            batch_size: pairs per batch.
        """
        self._check(dict_path, nce_num)
        samples = skip_grams.reader(
            dict_path,
            file_list,
            window_size=window_size,
            nce_num=nce_num,
            shuffle=True,
            shard=worker_share(),
        )
        return self.sample_loader(samples, batch_size)

    def load_dataset_from_file(
        self,
        dict_path: str,
        file_list: Files,
        window_size: int = 5,
        nce_num: int = 5,
        batch_size: int = 100,
    ) -> Any:
        """Return a data set for `exe.train_from_dataset`; workers take its files round-robin.

        See `load_reader_from_file`.
        """
        self._check(dict_path, nce_num)
        files, (index, count) = list_files(file_list), worker_share()
        if len(files) < count:
            raise ValueError(
                f"{len(files)} file(s) for {count} workers, which read whole files: split them, or "
                "use load_reader_from_file."
            )
        dataset = QueueDataset()
        dataset.set_use_var(self.inputs)
        dataset.set_batch_size(batch_size)
        dataset.set_filelist([str(path) for path in files[index::count]])
        command = [sys.executable, "-m", "fleetx.data.skip_gram_pipe"]
        dataset.set_pipe_command(join([*command, str(dict_path), str(window_size), str(nce_num)]))
        return dataset

    def _check(self, dict_path: str, nce_num: int) -> None:
        if nce_num != self.sizes.noise:
            raise ValueError(
                f"nce_num={nce_num}, but the model takes {self.sizes.noise} words as noise: create "
                f"it with Word2vecSizes(noise={nce_num})."
            )
        known = len(skip_grams.load_dictionary(dict_path).numbers)
        if known > self.sizes.words:
            raise ValueError(
                f"{dict_path} has {known} words, the model {self.sizes.words}: create it with "
                f"Word2vecSizes(words={known})."
            )
