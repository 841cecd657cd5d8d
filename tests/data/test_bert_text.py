"""Text for BERT: pairs of sentences, masks, batches by pieces."""

import numpy as np
import pytest
from torch.utils.data import DataLoader

from fleetx.data import bert_text
from fleetx.data.bert_text import BertTextConfig
from fleetx.data.word_pieces import WordPieces

pytest.importorskip("tokenizers")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{chr(97 + i)}{chr(97 + j)}" for i in range(10) for j in range(10)]


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS, "play", "##ing", "中", "文"]) + "\n")
    return path


@pytest.fixture
def text(tmp_path):
    """20 documents of 6 sentences of 4 words; word number says document and place."""
    path = tmp_path / "text.txt"
    rng = np.random.default_rng(0)
    documents = []
    for number in range(20):
        own = WORDS[5 * number : 5 * number + 5]
        documents.append("\n".join(" ".join(rng.choice(own, 4)) for _ in range(6)))
    path.write_text("\n\n".join(documents) + "\n")
    return path


def document_of(piece):
    return (piece - len(SPECIAL)) // 5


def test_pieces_of_words(vocab):
    pieces = WordPieces(vocab)
    base = len(SPECIAL) + len(WORDS)
    assert pieces.encode("Playing 中文 unheard") == [base, base + 1, base + 2, base + 3, 1]
    assert (pieces.pad, pieces.unk, pieces.cls, pieces.sep, pieces.mask) == (0, 1, 2, 3, 4)
    assert WordPieces(vocab, lowercase=False).encode("Playing") == [1]


def test_wrong_vocabularies_and_texts(tmp_path, vocab):
    vocab.with_name("v2").write_text("[PAD]\n[UNK]\na\n")
    with pytest.raises(ValueError, match=r"v2 lacks \[CLS\], \[SEP\], \[MASK\]"):
        WordPieces(vocab.with_name("v2"))
    vocab.with_name("v3").write_text("[PAD]\na\na\n")
    with pytest.raises(ValueError, match=r"v3, line 3: the piece 'a' is on line 2 too"):
        WordPieces(vocab.with_name("v3"))
    (tmp_path / "one").write_text("waa wab\nwaa\n")
    with pytest.raises(ValueError, match=r"one holds 1 document.*empty line"):
        next(bert_text.reader(tmp_path / "one", vocab)())
    with pytest.raises(ValueError, match=r"at least max_seq_len \(512\), not 100"):
        BertTextConfig(batch_size=100)


def test_pairs_follow_each_other_or_come_from_another_document(vocab, text):
    pieces = WordPieces(vocab)
    documents = bert_text.read_documents(text, pieces.encode)
    assert [len(document) for document in documents] == [6] * 20
    randoms = 0
    for seed in range(10):
        for pair in bert_text.make_pairs(documents, range(20), pieces, 16, str(seed)):
            assert len(pair.pieces) == len(pair.segments) <= 16
            middle = pair.segments.index(1)
            first, second = pair.pieces[1 : middle - 1], pair.pieces[middle:-1]
            assert pair.pieces[0] == pieces.cls
            assert pair.pieces[middle - 1] == pair.pieces[-1] == pieces.sep
            (one,), (other,) = ({document_of(p) for p in part} for part in (first, second))
            assert (one != other) == bool(pair.is_random)
            randoms += pair.is_random
    total = sum(
        len(list(bert_text.make_pairs(documents, range(20), pieces, 16, str(seed))))
        for seed in range(10)
    )
    assert 0.4 < randoms / total < 0.75  # a document's last sentence has no other beside it


def test_masks(vocab, text):
    config = BertTextConfig(batch_size=640, max_seq_len=32)
    pieces = WordPieces(vocab)
    kinds = {"mask": 0, "kept": 0, "other": 0}
    pieces_seen = 0
    data = bert_text.dataset(text, vocab, config)
    for epoch in range(20):
        data.set_epoch(epoch)
        for batch in data:
            ids, labels = batch["input_ids"], batch["labels"]
            chosen = labels != bert_text.IGNORED
            assert chosen.any(1).all()
            assert not np.isin(labels[chosen], [pieces.pad, pieces.cls, pieces.sep]).any()
            assert (batch["attention_mask"][chosen] == 1).all()
            pieces_seen += batch["attention_mask"].sum() - 3 * len(ids)
            kinds["mask"] += (ids[chosen] == pieces.mask).sum()
            kinds["kept"] += (ids[chosen] == labels[chosen]).sum()
    total = 0
    for epoch in range(20):
        data.set_epoch(epoch)
        total += sum((batch["labels"] != bert_text.IGNORED).sum() for batch in data)
    assert 0.14 < total / pieces_seen < 0.20
    assert kinds["mask"] / total == pytest.approx(0.8, abs=0.05)
    assert kinds["kept"] / total == pytest.approx(0.1, abs=0.05)


def test_batches_by_pieces_or_samples(vocab, text):
    by_pieces = BertTextConfig(batch_size=100, max_seq_len=32)
    batches = list(bert_text.dataset(text, vocab, by_pieces))
    assert all(batch["input_ids"].size <= 100 for batch in batches)
    assert len({batch["input_ids"].shape for batch in batches}) > 1
    by_samples = BertTextConfig(batch_size=4, max_seq_len=32, in_tokens=False)
    sizes = [len(batch["input_ids"]) for batch in bert_text.dataset(text, vocab, by_samples)]
    assert set(sizes[:-1]) == {4}


def test_paddle_feed_and_loader_hold_the_same(vocab, text):
    config = BertTextConfig(batch_size=128, max_seq_len=32, seed=5, shuffle=True)
    reader = bert_text.reader(text, vocab, config)
    feeds, later = list(reader()), list(reader())
    loader = DataLoader(bert_text.dataset(text, vocab, config), batch_size=None)
    for feed, batch in zip(feeds, loader, strict=True):
        ids, positions, segments, mask, label, place, next_label = feed
        rows, length = batch["input_ids"].shape
        assert ids.shape == positions.shape == segments.shape == mask.shape == (rows, length, 1)
        assert mask.dtype == np.float32
        assert (next_label[:, 0] == batch["next_sentence_label"].numpy()).all()
        assert (batch["labels"].numpy().reshape(-1)[place[:, 0]] == label[:, 0]).all()
        assert positions.max() == mask.sum(1).max() - 1
    assert not all(np.array_equal(a[0], b[0]) for a, b in zip(feeds, later, strict=False))


def test_workers_share_the_documents(vocab, text):
    config = BertTextConfig(batch_size=256, max_seq_len=32)
    owners = []
    for index in range(2):
        seen = set()
        for batch in bert_text.dataset(text, vocab, config, shard=(index, 2)):
            ids = np.where(batch["labels"] >= 0, batch["labels"], batch["input_ids"])
            seen |= set(document_of(ids[:, 1]).tolist())
        owners.append(seen)
    assert owners == [set(range(0, 20, 2)), set(range(1, 20, 2))]
