"""Data sets of text and tables by index, for `DataLoader`, from local files.

They hold the samples of the readers with the same names as arrays. `data_file` names an archive;
without it, it is looked for where the readers do (see `local_files.py`); nothing is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data import conll05, imdb, imikolov, movielens, uci_housing, wmt14, wmt16
from fleetx.data.dataset import Dataset
from fleetx.exports import export_defined

Source = str | Path | None


def _turned(index: dict[Any, Any]) -> dict[Any, Any]:
    return {number: word for word, number in index.items()}


class _Samples(Dataset):
    """Samples in memory."""

    data: Sequence[Any]

    def _check_mode(self, mode: str, *modes: str) -> None:
        self.mode = mode.lower()
        if self.mode not in modes:
            name = type(self).__name__
            raise ValueError(f"mode of {name} must be one of {', '.join(modes)}, not {mode!r}.")

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], ...]:
        return tuple(np.array(part) for part in self.data[index])

    def __len__(self) -> int:
        return len(self.data)


class Conll05st(_Samples):
    """Sentences with the semantic roles of one verb each, as nine lists of numbers."""

    def __init__(
        self,
        data_file: Source = None,
        word_dict_file: Source = None,
        verb_dict_file: Source = None,
        target_dict_file: Source = None,
        emb_file: Source = None,
        download: bool = True,
    ) -> None:
        indices = conll05.dictionaries(word_dict_file, verb_dict_file, target_dict_file)
        self.word_dict, self.predicate_dict, self.label_dict = indices
        self._emb_file = emb_file
        self.data = list(conll05.samples(data_file, *indices))

    def get_dict(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Return the numbers of words, verbs and labels."""
        return self.word_dict, self.predicate_dict, self.label_dict

    def get_embedding(self) -> str:
        """Return the path of the trained word vectors."""
        return conll05.get_embedding(self._emb_file)


class Imdb(_Samples):
    """Film reviews: word numbers, and 0 for positive or 1 for negative."""

    def __init__(
        self,
        data_file: Source = None,
        mode: str = "train",
        cutoff: int = 150,
        download: bool = True,
    ) -> None:
        self._check_mode(mode, "train", "test")
        self.word_idx = imdb.build_dict(
            re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$"), cutoff, data_file
        )
        read = imdb.train if self.mode == "train" else imdb.test
        self.data = [(words, [label]) for words, label in read(self.word_idx, data_file)()]


class Imikolov(_Samples):
    """Penn Treebank: n-grams of word numbers, or sentences shifted by a word."""

    def __init__(
        self,
        data_file: Source = None,
        data_type: str = "NGRAM",
        window_size: int = -1,
        mode: str = "train",
        min_word_freq: int = 50,
        download: bool = True,
    ) -> None:
        self._check_mode(mode, "train", "test")
        kind = getattr(imikolov.DataType, data_type.upper(), None)
        if kind is None:
            raise ValueError(f"data_type of Imikolov must be 'NGRAM' or 'SEQ', not {data_type!r}.")
        self.data_type, self.window_size = data_type.upper(), window_size
        self.word_idx = imikolov.build_dict(min_word_freq, data_file)
        name = f"ptb.{self.mode}.txt"
        self.data = list(imikolov.reader_of(name, self.word_idx, window_size, kind, data_file)())


class Movielens(_Samples):
    """Ratings of films: user, gender, age, job, film, categories, title words, rating."""

    def __init__(
        self,
        data_file: Source = None,
        mode: str = "train",
        test_ratio: float = 0.1,
        rand_seed: int = 0,
        download: bool = True,
    ) -> None:
        self._check_mode(mode, "train", "test")
        self.test_ratio, self.rand_seed = test_ratio, rand_seed
        read = movielens.train if self.mode == "train" else movielens.test
        samples: Iterable[list[Any]] = read(rand_seed, test_ratio, data_file)()
        self.data = [[np.atleast_1d(part) for part in sample] for sample in samples]
        self.movie_info = movielens.movie_info(data_file)
        self.user_info = movielens.user_info(data_file)
        self.movie_title_dict = movielens.get_movie_title_dict(data_file)
        self.categories_dict = movielens.movie_categories(data_file)


class UCIHousing(_Samples):
    """Prices of Boston homes: 13 scaled features, and the price; float32."""

    def __init__(
        self, data_file: Source = None, mode: str = "train", download: bool = True
    ) -> None:
        self._check_mode(mode, "train", "test")
        read = uci_housing.train if self.mode == "train" else uci_housing.test
        self.data = [[part.astype("float32") for part in row] for row in read(data_file)()]


class WMT14(_Samples):
    """Pairs of French and English sentences, as word numbers."""

    def __init__(
        self,
        data_file: Source = None,
        mode: str = "train",
        dict_size: int = -1,
        download: bool = True,
    ) -> None:
        self._check_mode(mode, "train", "test", "gen")
        if dict_size <= 0:
            raise ValueError(f"dict_size of WMT14 must be positive, not {dict_size}.")
        self.dict_size = dict_size
        self.src_dict, self.trg_dict = wmt14.get_dict(dict_size, False, data_file)
        read = {"train": wmt14.train, "test": wmt14.test, "gen": wmt14.gen}[self.mode]
        self.data = list(read(dict_size, data_file)())

    def get_dict(self, reverse: bool = False) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return the numbers of source and target words, or the words by number if `reverse`."""
        if reverse:
            return _turned(self.src_dict), _turned(self.trg_dict)
        return self.src_dict, self.trg_dict


class WMT16(_Samples):
    """Pairs of English and German sentences, as word numbers."""

    def __init__(
        self,
        data_file: Source = None,
        mode: str = "train",
        src_dict_size: int = -1,
        trg_dict_size: int = -1,
        lang: str = "en",
        download: bool = True,
    ) -> None:
        self._check_mode(mode, "train", "test", "val")
        for name, size in (("src_dict_size", src_dict_size), ("trg_dict_size", trg_dict_size)):
            if size <= 0:
                raise ValueError(f"{name} of WMT16 must be positive, not {size}.")
        readers = {"train": wmt16.train, "test": wmt16.test, "val": wmt16.validation}
        read = readers[self.mode](src_dict_size, trg_dict_size, lang, data_file)
        self.lang, other = lang, "de" if lang == "en" else "en"
        self.src_dict = wmt16.get_dict(lang, src_dict_size, data_dir=data_file)
        self.trg_dict = wmt16.get_dict(other, trg_dict_size, data_dir=data_file)
        self.data = list(read())

    def get_dict(self, lang: str, reverse: bool = False) -> dict[Any, Any]:
        """Return the numbers of a language's words, or the words by number if `reverse`."""
        index = self.src_dict if lang == self.lang else self.trg_dict
        return _turned(index) if reverse else index


export_defined(globals())
