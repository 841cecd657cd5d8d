"""Write tiny data sets in their true formats, and print the samples that the classes for them give.

text_samples.py API FOLDER
"""

import gzip
import io
import json
import os
import sys
import tarfile
import zipfile

import numpy as np

import paddle
from paddle.text import datasets

folder = sys.argv[2]
# WMT16 keeps dictionaries in the home of the data sets.
paddle.dataset.common.DATA_HOME = folder
os.makedirs(os.path.join(folder, "wmt16"), exist_ok=True)


def write_tar(name, files, mode="w:gz"):
    """Write an archive and return its path."""
    path = os.path.join(folder, name)
    with tarfile.open(path, mode) as tar:
        for inner, content in files.items():
            info = tarfile.TarInfo(inner)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def write(name, text):
    """Write a text file and return its path."""
    path = os.path.join(folder, name)
    with open(path, "w") as stream:
        stream.write(text)
    return path


PAIRS = b"a b c\tx y\nno pair\nb q\ty z z\n" + b"a " * 79 + b"\tx\n"
MARKS = b"<s>\n<e>\n<unk>\n"
WORDS = b"The\ncat\nsat\ndown\n\nRun\nnow\n\n"
PROPS = b"- (A0* *\n- *) *\nsit (V*) (A1*)\ndo * (V*)\n\nrun (V*)\n- (AM-TMP*)\n\n"
made = {
    "wmt14": write_tar(
        "wmt14.tgz",
        {
            "wmt14/src.dict": MARKS + b"a\nb\nc\n",
            "wmt14/trg.dict": MARKS + b"x\ny\nz\n",
            "wmt14/train/train": PAIRS,
            "wmt14/test/test": PAIRS[:12],
            "wmt14/gen/gen": PAIRS[:6],
        },
    ),
    "wmt16": write_tar(
        "wmt16.tar.gz", {f"wmt16/{p}": PAIRS.replace(b"q", b"b") for p in ("train", "test", "val")}
    ),
    "imdb": write_tar(
        "imdb.tar.gz",
        {
            "aclImdb/train/pos/0_9.txt": b"Good, good FILM!\n",
            "aclImdb/train/neg/0_1.txt": b"bad film; bad film\n",
            "aclImdb/test/pos/0_9.txt": b"good bad\n",
            "aclImdb/test/neg/0_1.txt": b"film unseen\n",
        },
    ),
    "imikolov": write_tar(
        "imikolov.tgz",
        {
            f"./simple-examples/data/ptb.{part}.txt": text
            for part, text in (
                ("train", b"the cat sat\nthe cat\n the the\n"),
                ("valid", b"the dog\n"),
                ("test", b"the cat ran\n"),
            )
        },
    ),
    "conll05": write_tar(
        "conll05.tar.gz",
        {
            "conll05st-release/test.wsj/words/test.wsj.words.gz": gzip.compress(WORDS),
            "conll05st-release/test.wsj/props/test.wsj.props.gz": gzip.compress(PROPS),
        },
    ),
    "words": write("wordDict.txt", "<unk>\nThe\ncat\nsat\nbos\neos\nRun\n"),
    "verbs": write("verbDict.txt", "sit\nrun\ndo\n"),
    "labels": write("targetDict.txt", "B-A0\nI-A0\nB-V\nB-A1\nB-AM-TMP\nO\n"),
    "emb": write("emb", "vectors"),
    "housing": write("housing.data", " ".join(map(str, np.random.RandomState(1).rand(70)))),
}
ratings = "".join(f"{1 + i % 2}::{1 + i % 3}::{1 + i % 5}::0\n" for i in range(30))
made["movielens"] = os.path.join(folder, "ml-1m.zip")
with zipfile.ZipFile(made["movielens"], "w") as archive:
    archive.writestr(
        "ml-1m/movies.dat", "1::One (1995)::Fun\n2::One (1996)::Fun\n3::One (1997)::Fun\n"
    )
    archive.writestr("ml-1m/users.dat", "1::F::1::10::0\n2::M::56::16::0\n")
    archive.writestr("ml-1m/ratings.dat", ratings)

found = {}


def note(name, data):
    """Keep all samples of a data set."""
    found[name] = [[np.asarray(part).tolist() for part in data[i]] for i in range(len(data))]


for mode in ("train", "test", "gen"):
    note("wmt14 " + mode, datasets.WMT14(made["wmt14"], mode, 6))
for lang in ("en", "de"):
    for size in (4, 5):
        # Real Paddle's class numbers the words of the target by those of the source; its reader
        # does not.
        creator = getattr(paddle.dataset.wmt16, "reader_creator", None)
        if creator is None:
            note(f"wmt16 {lang} {size}", datasets.WMT16(made["wmt16"], "val", size, 5, lang))
        else:
            note(f"wmt16 {lang} {size}", list(creator(made["wmt16"], "wmt16/val", size, 5, lang)()))
for mode in ("train", "test"):
    note("imdb " + mode, datasets.Imdb(made["imdb"], mode, 0))
    note("imikolov " + mode, datasets.Imikolov(made["imikolov"], "NGRAM", 3, mode, 0))
    note("imikolov seq " + mode, datasets.Imikolov(made["imikolov"], "SEQ", 3, mode, 0))
    note("movielens " + mode, datasets.Movielens(made["movielens"], mode, 0.3, 7))
    note("housing " + mode, datasets.UCIHousing(made["housing"], mode))
names = ("conll05", "words", "verbs", "labels", "emb")
roles = datasets.Conll05st(*(made[name] for name in names))
parts = [roles[i] for i in range(len(roles))]
found["conll05"] = [[np.asarray(part).tolist() for part in sample[:8]] for sample in parts]
# Which number a label has depends on the hash of strings there.
turned = {number: label for label, number in roles.get_dict()[2].items()}
found["conll05 labels"] = [[turned[n] for n in np.asarray(sample[8]).tolist()] for sample in parts]
print("FOUND " + json.dumps(found))
