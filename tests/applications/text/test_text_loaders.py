"""Models learn from files through their loaders; wrong files and sizes are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpora import bert_folder, click_file, translation_folder, triple_files, word_files
from tiny_models import BERT, CRITEO, TRANSFORMER

from fleetx import static
from fleetx.applications.bert import BertBase
from fleetx.applications.deepfm import DeepFM
from fleetx.applications.simnet import SimNet, SimNetSizes
from fleetx.applications.transformer import Transformer
from fleetx.applications.wide_and_deep import MultiSlotCTR
from fleetx.applications.word2vec import Word2vec, Word2vecSizes
from fleetx.data import text_triples, translation


def train(model: Any, loader: Any, passes: int = 4, rate: float = 0.02) -> list[float]:
    """Return the mean loss of each pass."""
    static.optimizer.Adam(rate).minimize(model.loss)
    executor = static.Executor(static.CPUPlace())
    executor.run(model.startup_prog)
    means = []
    for _ in range(passes):
        losses = [
            executor.run(model.main_prog, feed=feed, fetch_list=[model.loss])[0][0]
            for feed in loader()
        ]
        means.append(float(np.mean(losses)))
    return means


def test_bert_learns_from_a_folder(tmp_path: Path):
    folder = str(bert_folder(tmp_path / "text"))
    model = BertBase("en", **BERT)
    loader = model.get_train_dataloader(folder, batch_size=256, max_seq_len=24)
    means = train(model, loader)
    assert means[-1] < means[0]
    held_out = model.get_val_dataloader(folder, batch_size=4, max_seq_len=24, in_tokens=False)
    (first, *_) = list(held_out())
    assert first[0]["src_ids"].shape()[0] == 4
    with pytest.raises(ValueError, match="at least max_seq_len"):
        model.get_train_dataloader(folder, batch_size=16, max_seq_len=24)
    with pytest.raises(ValueError, match="positions=64"):
        model.get_train_dataloader(folder, max_seq_len=64)
    (tmp_path / "text" / "train.txt").unlink()
    with pytest.raises(FileNotFoundError, match="train"):
        model.get_train_dataloader(folder, max_seq_len=24)


def test_transformer_learns_from_a_folder(tmp_path: Path):
    folder = str(translation_folder(tmp_path / "wmt"))
    model = Transformer(TRANSFORMER)
    means = train(model, model.get_train_dataloader(folder, batch_size=128))
    assert means[-1] < 0.8 * means[0]
    for (feed,) in model.get_val_dataloader(folder, batch_size=64)():
        words = np.array(feed["src_word"])
        assert words.shape[0] * words.shape[1] <= 64


def test_batches_of_translations_are_dealt_out_in_equal_numbers(tmp_path: Path):
    folder = translation_folder(tmp_path / "wmt", lines=101)
    words = translation.load_vocabulary(folder / "vocab_all.bpe.32000")
    config = translation.TranslationConfig(batch_size=64, longest=16, shuffle=True)
    parts = [
        list(translation.batches(folder / "val.txt", words, config, shard=(i, 2))(0))
        for i in range(2)
    ]
    assert len(parts[0]) == len(parts[1]) > 3
    first, again = (translation.batches(folder / "val.txt", words, config)(n) for n in (0, 0))
    assert np.array_equal(next(first)["source"], next(again)["source"])
    whole = list(translation.batches(folder / "val.txt", words, config)(1))
    assert sum(len(batch["source"]) for batch in whole) == 101


def test_models_of_clicks_learn_from_criteo_lines(tmp_path: Path):
    path = str(click_file(tmp_path / "part-0"))
    for kind in (MultiSlotCTR, DeepFM):
        model = kind(CRITEO)
        with static.scope_guard(static.Scope()):
            means = train(model, model.load_criteo_from_file(path, batch_size=64))
            assert means[-1] < means[0], kind
    with pytest.raises(ValueError, match=r"CriteoSizes\(ids=1000\)"):
        model.load_criteo_from_file(path, sparse_feature_dim=1000)


def test_word2vec_learns_from_readers_and_data_sets(tmp_path: Path):
    words, files = word_files(tmp_path / "text")
    model = Word2vec(Word2vecSizes(words=20, row=8, noise=3))
    loader = model.load_reader_from_file(words, files, window_size=1, nce_num=3, batch_size=64)
    means = train(model, loader, rate=0.05)
    assert means[-1] < 0.9 * means[0]
    data = model.load_dataset_from_file(words, files, window_size=2, nce_num=3, batch_size=32)
    executor = static.Executor(static.CPUPlace())
    before = model.module_state()["words.weight"]
    executor.train_from_dataset(model.main_prog, data)
    assert not torch.equal(before, model.module_state()["words.weight"])
    with pytest.raises(ValueError, match=r"Word2vecSizes\(noise=5\)"):
        model.load_dataset_from_file(words, files)


def test_simnet_learns_from_triples(tmp_path: Path):
    words, triples = triple_files(tmp_path / "text")
    model = SimNet(SimNetSizes(words=21, row=8, hidden=8))
    means = train(model, model.load_reader_from_file(words, triples, batch_size=16))
    assert means[-1] < 0.8 * means[0]
    stream = text_triples.dataset(words, triples)
    query, chosen, other = text_triples.collate([next(iter(stream)), next(iter(stream))])
    assert len(query) == len(chosen) == len(other) == 2
    with pytest.raises(ValueError, match="outside a table of 10 rows"):
        SimNet(SimNetSizes(words=10, row=2, hidden=2)).load_reader_from_file(words, triples)
    (tmp_path / "wrong").write_text("w1 w2\tw3\n")
    with pytest.raises(ValueError, match=r"wrong, line 1: 2 texts, but a line has 3"):
        next(text_triples.reader(words, tmp_path / "wrong")())
