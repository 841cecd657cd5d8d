"""Tiny text and recommendation models, batches for them, and what their modules do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fleetx.applications.bert import BertBase
from fleetx.applications.criteo_model import CriteoSizes
from fleetx.applications.deepfm import DeepFM
from fleetx.applications.simnet import SimNet, SimNetSizes, lead_loss
from fleetx.applications.transformer import Transformer
from fleetx.applications.transformer_module import TransformerSizes
from fleetx.applications.wide_and_deep import MultiSlotCTR
from fleetx.applications.word2vec import Word2vec, Word2vecSizes, noise_contrast
from fleetx.data import translation
from fleetx.static.readers.lod_tensor import create_lod_tensor

CRITEO = CriteoSizes(ids=101, row=4, hidden=(8, 8))
BERT = {
    "layers": 2, "hidden": 8, "heads": 2, "inner": 16, "words": 40, "positions": 32, "dropout": 0.0,
}  # fmt: skip
TRANSFORMER = TransformerSizes(
    words=20, width=8, heads=2, inner=16, layers=2, longest=32, dropout=0.0
)


@dataclass(frozen=True)
class Case:
    """A model, a batch, and the loss of the module."""

    make: Callable[[], Any]
    batch: Callable[[np.random.RandomState], tuple[dict[str, Any], Any]]
    """The feed of the program, and what the module's loss takes."""
    loss: Callable[[nn.Module, Any], Tensor]


def bert_module_batch(batch: dict[str, Any]) -> dict[str, Tensor]:
    """Return a batch of the static model's inputs as keyword arguments of the module."""
    ids = torch.as_tensor(batch["src_ids"])
    rows, length = ids.shape[0], ids.shape[1]
    labels = torch.full((rows * length,), -100, dtype=torch.long)
    labels[torch.as_tensor(batch["mask_pos"]).reshape(-1).long()] = torch.as_tensor(
        batch["mask_label"]
    ).reshape(-1)
    return {
        "input_ids": ids.reshape(rows, length),
        "token_type_ids": torch.as_tensor(batch["sent_ids"]).reshape(rows, length),
        "position_ids": torch.as_tensor(batch["pos_ids"]).reshape(rows, length),
        "attention_mask": torch.as_tensor(batch["input_mask"]).reshape(rows, length),
        "labels": labels.reshape(rows, length),
        "next_sentence_label": torch.as_tensor(batch["labels"]).reshape(rows),
    }


def bert_batch(random: np.random.RandomState) -> tuple[dict[str, Any], Any]:
    texts, length = 3, 6
    mask = np.ones((texts, length, 1), "float32")
    mask[1, 4:] = 0
    feed = {
        "src_ids": random.randint(1, 40, (texts, length, 1)),
        "pos_ids": np.tile(np.arange(length)[None, :, None], (texts, 1, 1)),
        "sent_ids": random.randint(0, 2, (texts, length, 1)),
        "input_mask": mask,
        "mask_label": random.randint(0, 40, (4, 1)),
        "mask_pos": np.array([[1], [3], [7], [13]]),
        "labels": random.randint(0, 2, (texts, 1)),
    }
    return feed, bert_module_batch(feed)


def translation_batch(random: np.random.RandomState) -> tuple[dict[str, Any], Any]:
    pairs = [
        ([*random.randint(3, 20, size=n), 1], [*random.randint(3, 20, size=m), 1])
        for n, m in ((3, 4), (5, 2), (1, 5))
    ]
    batch = translation.pad_batch(pairs, 0, 1)
    names = (
        "src_word", "src_pos", "src_slf_attn_bias", "trg_word", "trg_pos", "trg_slf_attn_bias",
        "trg_src_attn_bias", "lbl_word", "lbl_weight",
    )  # fmt: skip
    feed = dict(zip(names, translation.as_paddle_feed(batch), strict=True))
    return feed, {name: torch.from_numpy(value) for name, value in batch.items()}


def translation_loss(module: Any, batch: dict[str, Tensor]) -> Tensor:
    scores = module(
        batch["source"], batch["target"], batch["source_padding"], batch["target_padding"]
    )
    return module.loss(scores, batch["label"], batch["target_padding"])


def criteo_batch(random: np.random.RandomState) -> tuple[dict[str, Any], Any]:
    dense = random.rand(6, 13).astype("float32")
    ids = random.randint(0, CRITEO.ids, (6, 26))
    label = random.randint(0, 2, (6, 1))
    slots = {f"C{i + 1}": ids[:, i : i + 1] for i in range(26)}
    feed = {"dense_input": dense, "label": label, **slots}
    return feed, [torch.from_numpy(value) for value in (dense, ids, label)]


def criteo_loss(module: nn.Module, batch: Any) -> Tensor:
    dense, ids, label = batch
    return F.binary_cross_entropy_with_logits(module(dense, ids), label.squeeze(1).float())


def word_batch(random: np.random.RandomState) -> tuple[dict[str, Any], Any]:
    word, neighbour = random.randint(0, 30, (5, 1)), random.randint(0, 30, (5, 1))
    noise = random.randint(0, 30, (5, 3))
    feed = {"input_word": word, "true_label": neighbour, "neg_label": noise}
    return feed, [torch.from_numpy(value) for value in feed.values()]


def triple_batch(random: np.random.RandomState) -> tuple[dict[str, Any], Any]:
    feed, padded = {}, []
    for name in ("q", "pt", "nt"):
        texts = [random.randint(1, 30, n).tolist() for n in random.randint(1, 5, 4)]
        words = np.concatenate(texts)[:, None].astype("int64")
        feed[name] = create_lod_tensor(words, [[len(text) for text in texts]], None)
        padded.append(
            nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
        )
    return feed, padded


CASES = {
    "bert": Case(
        lambda: BertBase("en", **BERT),
        bert_batch,
        lambda module, batch: module(**batch).loss,
    ),
    "transformer": Case(lambda: Transformer(TRANSFORMER), translation_batch, translation_loss),
    "wide and deep": Case(lambda: MultiSlotCTR(CRITEO), criteo_batch, criteo_loss),
    "deepfm": Case(lambda: DeepFM(CRITEO), criteo_batch, criteo_loss),
    "word2vec": Case(
        lambda: Word2vec(Word2vecSizes(words=30, row=6, noise=3)),
        word_batch,
        lambda module, batch: noise_contrast(module(*batch)),
    ),
    "simnet": Case(
        lambda: SimNet(SimNetSizes(words=30, row=6, hidden=5)),
        triple_batch,
        lambda module, batch: lead_loss(*module(*batch)),
    ),
}
