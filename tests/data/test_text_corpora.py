"""Readers of text corpora and of samples in files, on tiny files in their true formats."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.dataset
from fleetx.checkpoint.file_errors import FormatError
from fleetx.data import (
    bgr_image,
    conll05,
    mq2007,
    sample_files,
    sentiment,
    voc2012,
    wmt14,
    wmt16,
)


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix != ".tar" else "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    "name", ["conll05", "mq2007", "sentiment", "voc2012", "wmt14", "wmt16", "common", "image"]
)
def test_paddle_has_the_module(name: str) -> None:
    assert getattr(paddle.dataset, name).__name__ == f"paddle.dataset.{name}"


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: conll05.test(folder),
        lambda folder: wmt14.train(5, folder),
        lambda folder: wmt16.fetch(folder),
        lambda folder: sentiment.train(folder),
        lambda folder: voc2012.val(folder),
        lambda folder: next(mq2007.train(data_dir=folder)),
        lambda folder: mq2007.fetch(folder),
    ],
)
def test_a_missing_file_is_named_with_its_folder(tmp_path: Path, call: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"needs the file .*, which is not in .*put it"):
        call(tmp_path)


def conll05_files(folder: Path, props: str) -> None:
    words = "The\ncat\nchased\nmice\n.\n\nGo\n\n"
    write_tar(
        folder / "conll05st-tests.tar.gz",
        {
            "conll05st-release/test.wsj/words/test.wsj.words.gz": gzip.compress(words.encode()),
            "conll05st-release/test.wsj/props/test.wsj.props.gz": gzip.compress(props.encode()),
        },
    )
    (folder / "conll05st%2FwordDict.txt").write_text("<unk>\nbos\neos\nThe\ncat\nchased\nGo\n")
    (folder / "verbDict.txt").write_text("chase\ngo\n")
    (folder / "targetDict.txt").write_text("B-A0\nI-A0\nB-V\nB-A1\nI-A1\nO\n")
    (folder / "emb").write_bytes(b"vectors")


def test_conll05(tmp_path: Path) -> None:
    props = "- (A0*\n- *)\nchase (V*)\n- (A1*)\n- *\n\ngo (V*)\n\n"
    conll05_files(tmp_path, props)
    words, verbs, labels = conll05.get_dict(tmp_path)
    assert (words["cat"], verbs) == (4, {"chase": 0, "go": 1})
    assert labels == {
        **{"B-A0": 0, "I-A0": 1, "B-V": 2, "I-V": 3},
        **{"B-A1": 4, "I-A1": 5, "O": 6},
    }
    reader = conll05.test(tmp_path)
    for _ in range(2):
        first, second = reader()
    assert first[0] == [3, 4, 5, 0, 0]
    assert [column[0] for column in first[1:6]] == [3, 4, 5, 0, 0]
    assert first[6:] == ([0] * 5, [1] * 5, [0, 1, 2, 4, 6])
    assert second == ([6], [1], [1], [6], [2], [2], [1], [1], [2])
    assert Path(conll05.get_embedding(tmp_path)).read_bytes() == b"vectors"
    (tmp_path / "verbDict.txt").write_text("chase\n")
    with pytest.raises(ValueError, match=r"verb and labels \['go'\] are not in verbDict.txt"):
        list(conll05.test(tmp_path)())
    conll05_files(tmp_path, props.replace("(A1*)", "A1"))
    with pytest.raises(ValueError, match="label 'A1' is not one of"):
        list(reader())


def test_wmt14(tmp_path: Path) -> None:
    files = {
        "wmt14/src.dict": b"<s>\n<e>\n<unk>\nyes\nno\n",
        "wmt14/trg.dict": b"<s>\n<e>\n<unk>\noui\nnon\n",
        "wmt14/train/train": b"yes no\toui non\nno tab\n" + b"yes " * 79 + b"\toui\n",
        "wmt14/test/test": b"maybe\tnon\n",
        "wmt14/gen/gen": b"no\toui\n",
    }
    write_tar(tmp_path / "wmt14.tgz", files)
    assert list(wmt14.train(4, tmp_path)()) == [([0, 3, 2, 1], [0, 3, 2], [3, 2, 1])]
    assert list(wmt14.test(5, tmp_path)()) == [([0, 2, 1], [0, 4], [4, 1])]
    assert list(wmt14.gen(5, tmp_path)()) == [([0, 4, 1], [0, 3], [3, 1])]
    assert wmt14.get_dict(4, data_dir=tmp_path)[1] == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "oui"}
    assert wmt14.get_dict(5, reverse=False, data_dir=tmp_path)[0]["no"] == 4
    del files["wmt14/src.dict"]
    write_tar(tmp_path / "wmt14.tgz", files)
    with pytest.raises(ValueError, match="no pair of files src.dict and trg.dict"):
        wmt14.get_dict(4, data_dir=tmp_path)


def test_wmt16(tmp_path: Path) -> None:
    files = {
        "wmt16/train": b"a dog a cat\tein Hund\nno tab\na dog\tein Hund\n",
        "wmt16/val": b"dog\tHund\n",
        "wmt16/test": b"cat\teine Katze\n",
    }
    write_tar(tmp_path / "wmt16.tar.gz", files)
    assert wmt16.get_dict("en", 5, data_dir=tmp_path) == {
        **{"<s>": 0, "<e>": 1, "<unk>": 2},
        **{"a": 3, "dog": 4},
    }
    assert wmt16.get_dict("de", 9, reverse=True, data_dir=tmp_path)[4] == "Hund"
    assert list(wmt16.train(5, 5, data_dir=tmp_path)()) == [
        ([0, 3, 4, 3, 2, 1], [0, 3, 4], [3, 4, 1]),
        ([0, 3, 4, 1], [0, 3, 4], [3, 4, 1]),
    ]
    assert list(wmt16.validation(5, 6, "de", tmp_path)()) == [([0, 4, 1], [0, 4], [4, 1])]
    assert list(wmt16.test(6, 5, data_dir=tmp_path)()) == [([0, 5, 1], [0, 2, 2], [2, 2, 1])]
    assert wmt16.fetch(tmp_path) == str(tmp_path / "wmt16.tar.gz")
    with pytest.raises(ValueError, match="src_lang must be 'en' or 'de', not 'fr'"):
        wmt16.train(5, 5, "fr", tmp_path)
    write_tar(tmp_path / "wmt16.tar.gz", {"wmt16/val": b""})
    with pytest.raises(ValueError, match="holds no file wmt16/train"):
        wmt16.get_dict("en", 5, data_dir=tmp_path)


def test_sentiment(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "movie_reviews.zip", "w") as archive:
        archive.writestr("movie_reviews/README", "read")
        archive.writestr("movie_reviews/neg/cv001.txt", "bad , bad film .")
        archive.writestr("movie_reviews/neg/cv000.txt", "worst film !!")
        archive.writestr("movie_reviews/pos/cv000.txt", "good film .")
        archive.writestr("movie_reviews/pos/cv001.txt", "great")
    words = dict(sentiment.get_word_dict(tmp_path))
    assert words["film"] == 0
    assert len(words) == 8
    samples = list(sentiment.train(tmp_path))
    assert [label for _, label in samples] == [0, 1, 0, 1]
    assert samples[0][0] == [words["worst"], words["film"], words["!!"]]
    assert list(sentiment.test(tmp_path)) == []


def test_voc2012(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")

    def encoded(pixels: Any, kind: str) -> bytes:
        stream = io.BytesIO()
        image.fromarray(pixels).save(stream, kind)
        return stream.getvalue()

    classes = np.arange(12, dtype="uint8").reshape(3, 4)
    photo = encoded(np.full((3, 4, 3), 7, "uint8"), "JPEG")
    sets = "VOCdevkit/VOC2012/ImageSets/Segmentation"
    write_tar(
        tmp_path / "VOCtrainval_11-May-2012.tar",
        {
            f"{sets}/trainval.txt": b"a\nb\n",
            f"{sets}/train.txt": b"a\n",
            f"{sets}/val.txt": b"b\n",
            "VOCdevkit/VOC2012/JPEGImages/a.jpg": photo,
            "VOCdevkit/VOC2012/JPEGImages/b.jpg": photo,
            "VOCdevkit/VOC2012/SegmentationClass/a.png": encoded(classes, "PNG"),
            "VOCdevkit/VOC2012/SegmentationClass/b.png": encoded(classes[::-1], "PNG"),
        },
    )
    assert len(list(voc2012.train(tmp_path)())) == 2
    ((pixels, label),) = voc2012.test(tmp_path)()
    assert (pixels.shape, pixels.dtype) == ((3, 4, 3), np.uint8)
    np.testing.assert_array_equal(label, classes)
    ((_, label),) = voc2012.val(tmp_path)()
    np.testing.assert_array_equal(label, classes[::-1])


def test_mq2007(tmp_path: Path) -> None:
    path = tmp_path / "MQ2007/MQ2007/Fold1/train.txt"
    path.parent.mkdir(parents=True)

    def line(score: int, query: int, value: float) -> str:
        features = " ".join(f"{n}:{value}" for n in range(1, 47))
        return f"{score} qid:{query} {features} #docid = GX{query}\n"

    path.write_text(line(0, 10, 0.1) + line(2, 10, 0.2) + line(1, 10, 0.3) + line(0, 11, 0.4))
    pairs = list(mq2007.train(data_dir=tmp_path))
    assert [(left[0], right[0]) for _, left, right in pairs] == [(0.2, 0.3), (0.2, 0.1), (0.3, 0.1)]
    assert pairs[0][0].tolist() == [1]
    ((scores, features),) = mq2007.train(format="listwise", data_dir=tmp_path)
    assert (scores.tolist(), features.shape) == ([[2], [1], [0]], (3, 46))
    ((score, features),) = mq2007.train(format="pointwise", data_dir=tmp_path)
    assert (score, features[0]) == (2, 0.2)
    ((query, score, _),) = mq2007.train(format="plain_txt", data_dir=tmp_path)
    assert (query, score) == (10, 2)
    queries = mq2007.load_from_text("MQ2007/MQ2007/Fold1/train.txt", data_dir=tmp_path)
    assert [(each.query_id, len(each)) for each in queries] == [(10, 3), (11, 1)]
    assert queries[1][0].description == "docid = GX11"
    assert str(queries[1][0]).startswith("0 11 0.4 0.4")
    assert mq2007.query_filter(queries) == queries[:1]
    with pytest.raises(ValueError, match=r"documents of one query, not of \[10, 11\]"):
        mq2007.QueryList([queries[0][0], queries[1][0]])
    path.write_text("1 qid:1 1:0.5\n")
    with pytest.raises(ValueError, match=r"train.txt:1: 1 features, but a line has 46"):
        next(mq2007.train(data_dir=tmp_path))
    with pytest.raises(ValueError, match="format must be one of"):
        next(mq2007.train(format="pairs", data_dir=tmp_path))


def test_samples_in_files(tmp_path: Path) -> None:
    pattern = str(tmp_path / "part-%03d.pickle")
    sample_files.split(lambda: iter(range(6)), 2, suffix=pattern)
    assert [pickle.loads(p.read_bytes()) for p in sorted(tmp_path.iterdir())] == [
        *([0, 1, 2], [3, 4], [5]),
    ]
    first, second = (
        list(sample_files.cluster_files_reader(str(tmp_path / "*.pickle"), 2, worker)())
        for worker in range(2)
    )
    assert (first, second) == ([0, 1, 2, 5], [3, 4])
    (tmp_path / "evil.pickle").write_bytes(pickle.dumps([print]))
    with pytest.raises(FormatError, match="print"):
        list(sample_files.cluster_files_reader(str(tmp_path / "evil.pickle"), 1, 0)())


def test_images_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "photos.tar"
    write_tar(path, {"a.jpg": b"A", "b.jpg": b"B", "list.txt": b"", "c.jpg": b"C"})
    labels = {"a.jpg": 1, "b.jpg": 2, "c.jpg": 3}
    listed = bgr_image.batch_images_from_tar(path, "train", labels, num_per_batch=2)
    batches = [pickle.loads(Path(name).read_bytes()) for name in Path(listed).read_text().split()]
    assert batches == [{"label": [1, 2], "data": [b"A", b"B"]}, {"label": [3], "data": [b"C"]}]
    assert bgr_image.batch_images_from_tar(path, "train", {}) == listed
