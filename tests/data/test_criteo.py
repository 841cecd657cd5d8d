"""Criteo's lines as samples, for torch, for Paddle and through a pipe."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from torch.utils.data import DataLoader

from fleetx.data import criteo

SOURCES = str(Path(__file__).resolve().parents[2] / "src")


def criteo_line(number, label=None):
    dense = [str(number % 7 + column) for column in range(13)]
    dense[3] = ""
    sparse = [f"{number * 31 + column:08x}" for column in range(26)]
    sparse[5] = ""
    return "\t".join([str(number % 2) if label is None else label, *dense, *sparse])


@pytest.fixture
def files(tmp_path):
    first, second = tmp_path / "part-0", tmp_path / "part-1.gz"
    first.write_text("".join(criteo_line(i) + "\n" for i in range(7)))
    second.write_bytes(gzip.compress("".join(criteo_line(i) + "\n" for i in range(7, 12)).encode()))
    return [first, second]


def test_a_line_is_scaled_and_hashed(files):
    dense, sparse, label = next(iter(criteo.dataset(files[0])))
    assert (dense.dtype, sparse.dtype, label.dtype) == ("float32", "int64", "int64")
    # Numbers 0, 1, 2, (empty), 4, ... 12 in the ranges of the columns; the second begins at -3.
    expected = [0, 4 / 603, 2 / 100, 0, 4 / 64000, 5 / 500, 6 / 100, 7 / 50, 8 / 500]
    expected += [9 / 10, 10 / 10, 11 / 10, 12 / 50]
    np.testing.assert_allclose(dense, expected, rtol=1e-6)
    assert sparse[0] == crc32(b"1400000000") % 1000001
    assert sparse[5] == crc32(b"19") % 1000001  # an empty category is one, too
    assert label == [0]
    assert next(iter(criteo.dataset(files, sparse_feature_dim=10)))[1].max() < 10


def test_loader_and_reader_give_every_line_once(files):
    loader = DataLoader(criteo.dataset(files), batch_size=5, num_workers=2)
    batches = list(loader)
    assert batches[0][0].shape == (5, 13)
    assert batches[0][1].shape == (5, 26)
    alone = sorted(tuple(sample[1]) for sample in criteo.dataset(files))
    assert sorted(tuple(row.tolist()) for batch in batches for row in batch[1]) == alone
    slots = list(criteo.reader(files)())
    assert len(slots) == 12
    assert [len(slot) for slot in slots[0]] == [13, *[1] * 26, 1]
    assert len(slots[0]) == len(criteo.SLOTS)


def test_shares_are_equal_and_shuffling_follows_seed_and_epoch(files):
    def rows(**options):
        data = criteo.dataset(files, **options)
        for epoch in range(2):
            data.set_epoch(epoch)
            yield [int(sample[1][0]) for sample in data]

    whole, _ = rows()
    shares = [next(rows(shard=(i, 5))) for i in range(5)]
    assert [row for turn in zip(*shares, strict=True) for row in turn] == whole[:10]
    mixed, next_mixed = rows(shuffle=True, seed=3)
    assert sorted(mixed) == sorted(next_mixed) == sorted(whole)
    assert len({tuple(mixed), tuple(next_mixed), tuple(whole)}) == 3
    assert [mixed, next_mixed] == list(rows(shuffle=True, seed=3))
    reader = criteo.reader(files, shuffle=True, seed=3)
    assert [int(s[1][0]) for s in reader()] == mixed
    assert [int(s[1][0]) for s in reader()] == next_mixed


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("1\t2", "2 fields, but a line of Criteo has 40"),
        (criteo_line(0, label="2"), "the label must be 0 or 1, not '2'"),
        (criteo_line(0).replace("\t2\t", "\tmany\t", 1), "number 3 of 13 is 'many'"),
        (criteo_line(0).replace("\t2\t", "\tnan\t", 1), "number 3 of 13 is 'nan'"),
    ],
)
def test_wrong_lines_are_named_or_counted(tmp_path, wrong, problem):
    path = tmp_path / "part"
    path.write_text(f"{criteo_line(0)}\n{wrong}\n{criteo_line(1)}\n")
    with pytest.raises(ValueError, match=rf"part, line 2: {problem}"):
        list(criteo.dataset(path))
    with pytest.warns(UserWarning, match=rf"skipped 1 of 3 lines.*line 2: {problem}"):
        assert len(list(criteo.dataset(path, on_error="skip"))) == 2


def test_other_wrong_input(tmp_path):
    (tmp_path / "binary").write_bytes(b"1\t\xff\n")
    with pytest.raises(ValueError, match=r"binary, line 1: not UTF-8"):
        list(criteo.dataset(tmp_path / "binary"))
    with pytest.raises(FileNotFoundError, match="no file .*absent"):
        criteo.dataset(tmp_path / "absent")
    with pytest.raises(ValueError, match="shard 2 of 2 is out of range"):
        criteo.reader(tmp_path / "binary", shard=(2, 2))
    with pytest.raises(ValueError, match="sparse_feature_dim"):
        criteo.dataset(tmp_path / "binary", sparse_feature_dim=0)
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip'"):
        list(criteo.dataset(tmp_path / "binary", on_error="ignore"))


def test_pipe_command_writes_the_multi_slot_format(files):
    command = [sys.executable, "-m", "fleetx.data.criteo", "1000"]
    text = files[0].read_text()
    options = {"capture_output": True, "text": True, "env": {**os.environ, "PYTHONPATH": SOURCES}}
    done = subprocess.run(command, input=text, check=True, **options)
    lines = done.stdout.splitlines()
    assert len(lines) == 7
    fields = lines[0].split()
    dense, sparse, label = next(iter(criteo.dataset(files[0], sparse_feature_dim=1000)))
    assert fields[0] == "13"
    np.testing.assert_allclose([float(v) for v in fields[1:14]], dense)
    assert fields[14:] == [*(v for row in sparse for v in ("1", str(row))), "1", "0"]
    failed = subprocess.run(command, input=text + "x\n", **options)
    assert failed.returncode == 1
    assert "standard input, line 8: 1 fields" in failed.stderr
