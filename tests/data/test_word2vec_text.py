"""Skip-gram samples: windows, negatives, dictionaries."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from torch.utils.data import DataLoader

from fleetx.data import word2vec


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text"
    path.write_text("the cat saw the dog\nthe dog ran\na cat\n\nthe end of the day\n")
    word2vec.build_dictionary(path, tmp_path / "dict", min_count=2)
    return path, tmp_path / "dict"


def test_dictionary_counts_words_and_is_read_again(corpus):
    path, dictionary = corpus
    # Six other words, seen once each, are counted together
    assert dictionary.read_text() == "<UNK> 6\nthe 5\ncat 2\ndog 2\n"
    words = word2vec.load_dictionary(dictionary)
    assert words.encode("the fish the").tolist() == [1, 0, 1]
    assert words.counts.tolist() == [6, 5, 2, 2]
    without = dictionary.with_name("d2")
    without.write_text("the 5\ndog 2\n")
    assert word2vec.load_dictionary(without).encode("a dog the").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("the 5\ndog\n", "line 2: a line is 'word count'"),
        ("the 0\n", "line 1: a line is 'word count', with a count of at least 1"),
        ("the many\n", "line 1: a line is 'word count'"),
        ("the 5\ndog 2\nthe 3\n", "line 3: the word 'the' is already on line 1"),
        ("\n", "is empty"),
    ],
)
def test_wrong_dictionaries(tmp_path, text, problem):
    (tmp_path / "dict").write_text(text)
    with pytest.raises(ValueError, match=problem):
        word2vec.load_dictionary(tmp_path / "dict")


def test_pairs_are_the_words_within_the_window(tmp_path):
    (tmp_path / "dict").write_text("".join(f"w{i} 1\n" for i in range(20)))
    words = word2vec.load_dictionary(tmp_path / "dict")
    text = " ".join(f"w{i}" for i in range(20))
    narrow = list(word2vec.SkipGram(words, window_size=1).samples(text))
    assert [(int(a[0]), int(b[0])) for a, b, _ in narrow] == [
        (i, j) for i in range(20) for j in (i - 1, i + 1) if 0 <= j < 20
    ]
    seen = Counter()
    for turn in range(200):
        skip_gram = word2vec.SkipGram(words, window_size=4, rng=np.random.default_rng(turn))
        for a, b, _ in skip_gram.samples(text):
            seen[abs(int(a[0]) - int(b[0]))] += 1
    # A window of random size from 1 to 4 reaches distance d with chance (5 - d) / 4.
    assert set(seen) == {1, 2, 3, 4}
    for distance in (2, 3, 4):
        expected = (5 - distance) / 4 * (20 - distance) / 19
        assert seen[distance] / seen[1] == pytest.approx(expected, rel=0.1)


def test_negatives_follow_counts_to_the_three_quarters_and_frequent_words_thin_out(tmp_path):
    (tmp_path / "dict").write_text("often 800\nrare 100\nrarer 100\n")
    words = word2vec.load_dictionary(tmp_path / "dict")
    skip_gram = word2vec.SkipGram(words, nce_num=7, rng=np.random.default_rng(0))
    drawn = skip_gram.negatives(5000)
    assert drawn.shape == (5000, 7)
    weights = np.array([800, 100, 100]) ** 0.75
    np.testing.assert_allclose(
        np.bincount(drawn.ravel()) / drawn.size, weights / weights.sum(), atol=0.01
    )
    thin = word2vec.SkipGram(words, window_size=1, subsample=0.1, rng=np.random.default_rng(0))
    kept = Counter(int(a[0]) for a, _, _ in thin.samples("often rare " * 5000))
    # share 0.8 of the text: kept with chance (sqrt(8) + 1) / 8; a share of 0.1 is always kept
    assert kept[0] / kept[1] == pytest.approx((8**0.5 + 1) / 8, rel=0.05)
    with pytest.raises(ValueError, match="window_size must be at least 1"):
        word2vec.SkipGram(words, window_size=0)


def test_reader_and_loader_repeat_by_seed_and_share_lines(corpus):
    path, dictionary = corpus
    reader = word2vec.reader(dictionary, path, window_size=2, nce_num=3, seed=4)
    first, second = list(reader()), list(reader())
    assert [s.shape for s in first[0]] == [(1,), (1,), (3,)]
    assert all(s.dtype == np.int64 for s in first[0])
    again = list(word2vec.reader(dictionary, path, window_size=2, nce_num=3, seed=4)())
    assert all(
        np.array_equal(a, b)
        for x, y in zip(first, again, strict=True)
        for a, b in zip(x, y, strict=True)
    )
    assert any(
        not np.array_equal(a, b)
        for x, y in zip(first, second, strict=False)
        for a, b in zip(x, y, strict=True)
    )
    stream = word2vec.dataset(dictionary, path, window_size=2, nce_num=3, seed=4)
    words, beside, others = next(iter(DataLoader(stream, batch_size=4)))
    assert (words.shape, beside.shape, others.shape) == ((4, 1), (4, 1), (4, 3))
    assert words.flatten().tolist() == [int(s[0][0]) for s in islice(first, 4)]
    # Lines 1 and 3 for one worker, 2 and 4 for the other; the last line is without a partner.
    other = word2vec.dataset(dictionary, path, window_size=1, shard=(1, 2))
    assert [(int(a[0]), int(b[0])) for a, b, _ in other] == [(1, 3), (3, 1), (3, 0), (0, 3)]
