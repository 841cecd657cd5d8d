"""Data sets of text and tables by index, on tiny files in their true formats."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from fleetx.data import conll05
from fleetx.data import text_datasets as text
from fleetx.data.vision_datasets import VOC2012

PAIRS = b"a b c\tx y\nno pair\nb q\ty z z\n" + b"a " * 79 + b"\tx\n"


def write_tar(path, files):
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def lists(data):
    return [[part.tolist() for part in data[i]] for i in range(len(data))]


def test_wmt14(tmp_path):
    marks = b"<s>\n<e>\n<unk>\n"
    files = {"w/src.dict": marks + b"a\nb\nc\n", "w/trg.dict": marks + b"x\ny\nz\n"}
    files |= {"w/train/train": PAIRS, "w/test/test": PAIRS[:10], "w/gen/gen": b""}
    path = write_tar(tmp_path / "any.tgz", files)
    first = [[0, 3, 4, 2, 1], [0, 3, 4], [3, 4, 1]]
    data = text.WMT14(path, "TEST", 5)
    assert lists(data) == [first]
    assert data[0][0].dtype == np.int64
    assert len(text.WMT14(path, "train", 5)) == 2
    assert len(text.WMT14(path, "gen", 5)) == 0
    assert data.get_dict()[1]["x"] == data.get_dict()[0]["a"] == 3
    assert data.get_dict(reverse=True)[1][3] == "x"
    with pytest.raises(ValueError, match="dict_size of WMT14 must be positive, not -1"):
        text.WMT14(path)
    with pytest.raises(ValueError, match="mode of WMT14 must be one of train, test, gen, not 'x'"):
        text.WMT14(path, "x", 5)


def test_wmt16(tmp_path):
    path = write_tar(tmp_path / "any.tar", {f"wmt16/{part}": PAIRS for part in ("train", "val")})
    data = text.WMT16(path, "val", 5, 4, "de")
    assert lists(data)[0] == [[0, 3, 4, 1], [0, 3, 2, 2], [3, 2, 2, 1]]
    assert data.get_dict("en", reverse=True)[3] == "a"
    assert data.get_dict("de")["y"] == 4
    with pytest.raises(ValueError, match="'en' or 'de', not 'fr'"):
        text.WMT16(path, "val", 5, 4, "fr")
    with pytest.raises(ValueError, match="trg_dict_size of WMT16 must be positive, not -1"):
        text.WMT16(path, "val", 5)


def test_conll05(tmp_path):
    words = b"The\ncat\nsat\ndown\n\nRun\nnow\n\n"
    props = b"- (A0* *\n- *) *\nsit (V*) (A1*)\ndo * (V*)\n\nrun (V*)\n- (TMP*)\n\n"
    folder = "conll05st-release/test.wsj"
    path = write_tar(
        tmp_path / "conll05st-tests.tar.gz",
        {
            f"{folder}/words/test.wsj.words.gz": gzip.compress(words),
            f"{folder}/props/test.wsj.props.gz": gzip.compress(props),
        },
    )
    (tmp_path / "wordDict.txt").write_text("<unk>\nThe\ncat\nsat\nbos\neos\nRun\n")
    (tmp_path / "verbDict.txt").write_text("sit\nrun\ndo\n")
    labels = tmp_path / "targetDict.txt"
    labels.write_text("B-A0\nI-A0\nB-V\nB-A1\nB-TMP\nO\n")
    (tmp_path / "emb").write_text("vectors")
    first, second, third = conll05.test(tmp_path)()
    around = ([1] * 4, [2] * 4, [3] * 4, [0] * 4, [5] * 4)
    assert first == ([1, 2, 3, 0], *around, [0] * 4, [1] * 4, [0, 1, 2, 8])
    assert second[6:] == ([2] * 4, [0, 1, 1, 1], [8, 8, 4, 2])
    assert third[1:] == ([4] * 2, [4] * 2, [6] * 2, [0] * 2, [5] * 2, [1] * 2, [1, 1], [2, 6])
    names = (path, *(tmp_path / name for name in ("wordDict.txt", "verbDict.txt")))
    data = text.Conll05st(*names, labels, tmp_path / "emb")
    assert lists(data) == [list(each) for each in (first, second, third)]
    assert data.get_embedding() == str(tmp_path / "emb") == conll05.get_embedding(tmp_path)
    assert data.get_dict()[2]["O"] == 8
    labels.write_text("B-A0\n")
    with pytest.raises(ValueError, match=r"labels \['B-V'\]"):
        text.Conll05st(*names, labels)


def test_reviews_and_sentences_by_index(tmp_path):
    reviews = {
        "aclImdb/train/pos/0_9.txt": b"Good, good FILM!\n",
        "aclImdb/train/neg/0_1.txt": b"bad film; film\n",
        "aclImdb/test/neg/0_1.txt": b"film unseen\n",
    }
    path = write_tar(tmp_path / "imdb.tar", reviews)
    assert lists(text.Imdb(path, "train", 0)) == [[[1, 1, 0], [0]], [[2, 0, 0], [1]]]
    assert lists(text.Imdb(path, "test", 1)) == [[[0, 2], [1]]]
    parts = {"train": b"the cat sat\nthe cat\n", "valid": b"the dog\n", "test": b"the cat ran\n"}
    files = {f"./simple-examples/data/ptb.{name}.txt": body for name, body in parts.items()}
    path = write_tar(tmp_path / "ptb.tar", files)
    ids = text.Imikolov(path, "NGRAM", 3, "test", 0).word_idx
    the, cat, unknown = ids[b"the"], ids[b"cat"], ids["<unk>"]
    start, end = ids["<s>"], ids["<e>"]
    grams = [[start, the, cat], [the, cat, unknown], [cat, unknown, end]]
    assert lists(text.Imikolov(path, "NGRAM", 3, "test", 0)) == grams
    assert lists(text.Imikolov(path, "seq", 3, "train", 0)) == [
        [[start, the, cat], [the, cat, end]]
    ]
    with pytest.raises(ValueError, match="data_type of Imikolov must be 'NGRAM' or 'SEQ'"):
        text.Imikolov(path, "PAIR")


def test_tables_by_index(tmp_path):
    (tmp_path / "housing.data").write_text(" ".join(map(str, range(70))))
    homes = text.UCIHousing(tmp_path / "housing.data", "train")
    assert len(homes) == 4
    features, price = homes[1]
    assert (features.dtype, features.shape, price.tolist()) == (np.float32, (13,), [27.0])
    np.testing.assert_allclose(features, -0.25)
    with zipfile.ZipFile(tmp_path / "ml-1m.zip", "w") as archive:
        archive.writestr("ml-1m/movies.dat", "1::One Two (1995)::Fun|Old\n")
        archive.writestr("ml-1m/users.dat", "1::F::1::10::0\n")
        archive.writestr("ml-1m/ratings.dat", "1::1::5::0\n" * 20)
    ratings = [text.Movielens(tmp_path / "ml-1m.zip", mode) for mode in ("train", "test")]
    assert sum(map(len, ratings)) == 20
    assert lists(ratings[0])[0] == [[1], [1], [0], [10], [1], [0, 1], [0, 1], [5.0]]
    assert ratings[0].movie_info[1].title == "One Two "


def test_voc2012(tmp_path):
    def encoded(value, kind):
        stream = io.BytesIO()
        mode = "RGB" if kind == "JPEG" else "L"
        Image.new(mode, (4, 3), value).save(stream, kind)
        return stream.getvalue()

    root = "VOCdevkit/VOC2012/"
    files = {f"{root}ImageSets/Segmentation/{p}.txt": b"one\n" for p in ("train", "val")}
    files[f"{root}ImageSets/Segmentation/trainval.txt"] = b"one\ntwo\n"
    for number, name in enumerate(("one", "two")):
        files[f"{root}JPEGImages/{name}.jpg"] = encoded((number * 100,) * 3, "JPEG")
        files[f"{root}SegmentationClass/{name}.png"] = encoded(number + 5, "PNG")
    path = write_tar(tmp_path / "VOCtrainval_11-May-2012.tar", files)
    data = VOC2012(str(path), "train", transform=lambda im: im / 2, backend="cv2")
    assert len(data) == 2
    assert [part.dtype for part in data[1]] == [np.float32, np.float32]
    assert abs(data[1][0][0, 0, 0] - 50) < 2
    assert VOC2012(str(path), "valid", backend="pil")[0][1].size == (4, 3)
    del files[f"{root}JPEGImages/one.jpg"]
    broken = VOC2012(str(write_tar(tmp_path / "other.tar", files)), "test")
    with pytest.raises(ValueError, match=r"holds no file .*JPEGImages/one.jpg"):
        _ = broken[0]
