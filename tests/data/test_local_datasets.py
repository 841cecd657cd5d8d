"""Readers of local data sets, on tiny files in their true formats."""

import gzip
import io
import itertools
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from fleetx.checkpoint.file_errors import FormatError
from fleetx.data import cifar, flowers, imdb, imikolov, mnist, movielens, uci_housing


def write_tar(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def write_idx(path, array):
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(head + array.astype("uint8").tobytes()))


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: mnist.train(folder),
        lambda folder: cifar.train10(data_dir=folder),
        lambda folder: flowers.train(data_dir=folder),
        lambda folder: uci_housing.train(folder),
        lambda folder: imdb.word_dict(folder),
        lambda folder: imikolov.build_dict(data_dir=folder),
        lambda folder: movielens.train(data_dir=folder),
    ],
)
def test_a_missing_file_is_named_with_its_folder(tmp_path, call):
    with pytest.raises(FileNotFoundError, match=r"needs the file .*, which is not in .*put it"):
        call(tmp_path)


def test_the_usual_folder_is_in_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".cache" / "paddle" / "dataset" / "mnist"
    with pytest.raises(FileNotFoundError, match=str(folder)):
        mnist.test()


def test_mnist(tmp_path):
    images = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.array([5, 0, 4]))
    reader = mnist.train(tmp_path)
    for _ in range(2):
        samples = list(reader())
        assert [label for _, label in samples] == [5, 0, 4]
    pixels = samples[0][0]
    assert (pixels.shape, pixels.dtype) == ((784,), np.float32)
    assert (pixels.min(), pixels.max()) == (-1, 1)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.array([5, 0]))
    with pytest.raises(ValueError, match="3 images.*2 labels"):
        next(reader())
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"no idx"))
    with pytest.raises(ValueError, match="not an IDX file"):
        next(reader())


def cifar_batch(labels, key=b"labels"):
    """Write {'data': array, key: labels} as Python 2 did, opcode by opcode."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    pixels = (np.arange(len(labels) * 3072) % 256).astype("uint8").tobytes()
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + number(-1) * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
    array += b"\x87R(K\x01" + number(len(labels)) + number(3072) + b"\x86" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    values = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key) + values + b"u."


def test_cifar10(tmp_path):
    folder = "cifar-10-batches-py/"
    write_tar(
        tmp_path / "cifar-10-python.tar.gz",
        {
            folder + "batches.meta": b"",
            folder + "data_batch_1": cifar_batch([6, 9]),
            folder + "data_batch_2": cifar_batch([1]),
            folder + "test_batch": cifar_batch([3]),
        },
    )
    samples = list(cifar.train10(data_dir=tmp_path)())
    assert [label for _, label in samples] == [6, 9, 1]
    assert (samples[0][0].dtype, samples[0][0].shape) == (np.float32, (3072,))
    assert samples[0][0].max() == 1
    endless = cifar.test10(cycle=True, data_dir=tmp_path)()
    assert [label for _, label in itertools.islice(endless, 3)] == [3, 3, 3]


def test_cifar100_and_foreign_files(tmp_path):
    path = tmp_path / "cifar-100-python.tar.gz"
    write_tar(path, {"cifar-100-python/train": cifar_batch([77], b"fine_labels")})
    assert [label for _, label in cifar.train100(tmp_path)()] == [77]
    with pytest.raises(ValueError, match=r"no file named \*test\*"):
        list(cifar.test100(tmp_path)())

    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    write_tar(path, {"cifar-100-python/train": pickle.dumps({b"data": Evil()}, protocol=2)})
    with pytest.raises(FormatError, match="print"):
        list(cifar.train100(tmp_path)())


def test_uci_housing(tmp_path):
    table = np.arange(70.0).reshape(5, 14)
    table[:, 3] = 1  # a feature that never changes
    text = "\n".join(" ".join(f"{v:8.3f}" for v in row) for row in table)
    (tmp_path / "housing.data").write_text(text)
    train, test = list(uci_housing.train(tmp_path)()), list(uci_housing.test(tmp_path)())
    assert (len(train), len(test)) == (4, 1)
    features = np.stack([x for x, _ in train + test])
    assert features.shape == (5, 13)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(features[:, 0], [-0.5, -0.25, 0, 0.25, 0.5])
    assert train[0][1].tolist() == [13.0]
    (tmp_path / "housing.data").write_text("1 2 3")
    with pytest.raises(ValueError, match="14 numbers per home"):
        uci_housing.train(tmp_path)


def test_imdb(tmp_path):
    reviews = {
        "aclImdb/train/pos/0_9.txt": b"Good, good FILM!",
        "aclImdb/train/neg/0_1.txt": b"bad film\n",
        "aclImdb/test/pos/0_8.txt": b"good?",
        "aclImdb/README": b"good good good",
    }
    write_tar(tmp_path / "aclImdb_v1.tar.gz", reviews)
    import re

    words = imdb.build_dict(re.compile(r"aclImdb/train/.*\.txt$"), 1, tmp_path)
    assert words == {b"film": 0, b"good": 1, "<unk>": 2}
    assert list(imdb.train(words, tmp_path)()) == [([1, 1, 0], 0), ([2, 0], 1)]
    assert list(imdb.test(words, tmp_path)()) == [([1], 0)]
    assert imdb.word_dict(tmp_path) == {"<unk>": 0}


def test_imikolov(tmp_path):
    text = {
        "./simple-examples/data/ptb.train.txt": b"a b a <unk>\nb\n",
        "./simple-examples/data/ptb.valid.txt": b"a b\n",
    }
    write_tar(tmp_path / "imikolov%2Fsimple-examples.tgz", text)
    words = imikolov.build_dict(1, data_dir=tmp_path)
    assert words == {"<e>": 0, "<s>": 1, b"a": 2, b"b": 3, "<unk>": 4}
    assert list(imikolov.train(words, 3, data_dir=tmp_path)()) == [
        *((1, 2, 3), (2, 3, 2), (3, 2, 4), (2, 4, 0)),
        (1, 3, 0),
    ]
    sequences = imikolov.test(words, 0, imikolov.DataType.SEQ, data_dir=tmp_path)
    assert list(sequences()) == [([1, 2, 3], [2, 3, 0])]
    with pytest.raises(ValueError, match="n of at least 1"):
        imikolov.train(words, 0, data_dir=tmp_path)


def test_movielens(tmp_path):
    with zipfile.ZipFile(tmp_path / "ml-1m.zip", "w") as archive:
        archive.writestr("ml-1m/users.dat", "1::F::18::10::48067\n2::M::56::16::70072\n")
        archive.writestr("ml-1m/movies.dat", "7::Toy Story (1995)::Animation|Comedy\n")
        rating = "2::7::5::978300760\n"
        archive.writestr("ml-1m/ratings.dat", rating * 20 + "1::7::1::978300760\n")
    train = list(movielens.train(data_dir=tmp_path)())
    test = list(movielens.test(data_dir=tmp_path)())
    assert len(train) + len(test) == 21
    assert train[0] == [2, 0, 6, 16, 7, [0, 1], [1, 0], [5.0]]
    assert movielens.movie_categories(tmp_path) == {"Animation": 0, "Comedy": 1}
    assert movielens.get_movie_title_dict(tmp_path) == {"story": 0, "toy": 1}
    highest = (movielens.max_user_id, movielens.max_movie_id, movielens.max_job_id)
    assert [function(tmp_path) for function in highest] == [2, 7, 16]


@pytest.mark.parametrize("use_xmap", [True, False])
def test_flowers(tmp_path, use_xmap):
    image = pytest.importorskip("PIL.Image")
    scipy_io = pytest.importorskip("scipy.io")
    files = {}
    for i, color in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255)], 1):
        buffer = io.BytesIO()
        image.new("RGB", (300, 280), color).save(buffer, "JPEG", quality=100)
        files[f"jpg/image_{i:05d}.jpg"] = buffer.getvalue()
    write_tar(tmp_path / "102flowers.tgz", files)
    scipy_io.savemat(tmp_path / "imagelabels.mat", {"labels": [[77, 1, 102]]})
    scipy_io.savemat(tmp_path / "setid.mat", {"tstid": [[1, 3]], "trnid": [[2]], "valid": [[3]]})
    train = list(flowers.train(data_dir=tmp_path, use_xmap=use_xmap, buffered_size=1)())
    assert [label for _, label in train] == [76, 101]
    pixels = train[0][0].reshape(3, 224, 224)
    assert pixels.dtype == np.float32
    # Red, in the order blue, green, red, less the mean.
    np.testing.assert_allclose(pixels.mean((1, 2)), [-103.94, -116.78, 131.32], atol=3)
    assert [label for _, label in flowers.test(data_dir=tmp_path)()] == [0]
    assert [label for _, label in flowers.valid(data_dir=tmp_path, use_xmap=use_xmap)()] == [101]
    raw = flowers.train(lambda sample: sample[1], use_xmap=use_xmap, cycle=True, data_dir=tmp_path)
    if not use_xmap:
        assert list(itertools.islice(raw(), 5)) == [76, 101, 76, 101, 76]
