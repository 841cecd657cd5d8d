"""BERT in its published sizes, and loaders of text for it.

A data folder has BERT's vocabulary `vocab.txt`, training text in files `train*` and, for
validation, `val*`: one sentence per line, an empty line between documents.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fleetx.applications.bert_network import BertModel
from fleetx.applications.bert_sizes import bert_sizes
from fleetx.applications.reading import files_in, worker_share
from fleetx.data import bert_text
from fleetx.data.text_lines import take_share
from fleetx.data.word_pieces import WordPieces
from fleetx.static.readers.generator_loader import GeneratorLoader


class Bert(BertModel):
    """A BERT with loaders of its text.

    Args:
        lang: 'ch' for Chinese, 'en' for English.
        sizes: fields of `BertSizes` that differ from the published ones.
    """

    name = ""
    """The published size."""

    def __init__(self, lang: str, **sizes: Any) -> None:
        super().__init__(dataclasses.replace(bert_sizes(self.name, lang), **sizes), lang)

    def get_train_dataloader(
        self,
        data_dir: str,
        batch_size: int = 4096,
        max_seq_len: int = 512,
        in_tokens: bool = True,
        shuffle: bool = True,
    ) -> GeneratorLoader:
        """Return a loader of training text.

        Args:
            data_dir: the folder.
            batch_size: tokens per batch, or samples if not `in_tokens`.
            max_seq_len: the maximum length of a sample.
            in_tokens: whether `batch_size` counts tokens; it is then at least `max_seq_len`.
            shuffle: shuffle the samples, differently in every pass.
        """
        return self._loader(data_dir, "train*", (batch_size, max_seq_len, in_tokens, shuffle))

    def get_val_dataloader(
        self,
        data_dir: str,
        batch_size: int = 4096,
        max_seq_len: int = 512,
        in_tokens: bool = True,
        shuffle: bool = False,
    ) -> GeneratorLoader:
        """Return a loader of validation text; see `get_train_dataloader`."""
        return self._loader(data_dir, "val*", (batch_size, max_seq_len, in_tokens, shuffle))

    def _loader(self, folder: str, files: str, options: tuple[int, int, bool, bool]) -> Any:
        batch_size, max_seq_len, in_tokens, shuffle = options
        if max_seq_len > self.sizes.positions:
            raise ValueError(
                f"max_seq_len={max_seq_len}, but the model has {self.sizes.positions} positions: "
                f"create it with positions={max_seq_len}."
            )
        config = bert_text.BertTextConfig(
            batch_size=batch_size,
            max_seq_len=max_seq_len,
            in_tokens=in_tokens,
            shuffle=shuffle,
        )
        vocabulary = files_in(folder, "vocab.txt")[0]
        self._check_words(vocabulary)
        # All workers create the same batches and take them round-robin: each gets the same number,
        # as collective training requires.
        everything = bert_text.reader(files_in(folder, files), vocabulary, config)
        index, count = worker_share()
        return self.batch_loader(lambda: take_share(everything(), index, count))

    def _check_words(self, vocabulary: Path) -> None:
        known = WordPieces(vocabulary).size
        if known > self.sizes.words:
            raise ValueError(
                f"{vocabulary} has {known} words, the model {self.sizes.words}: create it with "
                f"words={known}."
            )


class BertBase(Bert):
    """12 layers of width 768, 110 million parameters."""

    name = "base"

    def __init__(self, lang: str = "ch", **sizes: Any) -> None:
        super().__init__(lang, **sizes)


class BertLarge(Bert):
    """24 layers of width 1024, 340 million parameters."""

    name = "large"

    def __init__(self, lang: str = "ch", **sizes: Any) -> None:
        super().__init__(lang, **sizes)


class BertHuge(Bert):
    """32 layers of width 1280, 670 million parameters; English only."""

    name = "huge"

    def __init__(self, lang: str = "en", **sizes: Any) -> None:
        super().__init__(lang, **sizes)


class BertGiant(Bert):
    """60 layers of width 6144, 27.4 billion parameters; English only."""

    name = "giant"

    def __init__(self, lang: str = "en", **sizes: Any) -> None:
        super().__init__(lang, **sizes)
