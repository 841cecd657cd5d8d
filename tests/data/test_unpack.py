"""Tars that fill the same folders are unpacked at the same time."""

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleetx.data.unpack import unpack


def make_tar(path, names):
    with tarfile.open(path, "w") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    return path


@pytest.mark.slow
def test_threads_share_folders(tmp_path):
    for trial in range(20):
        folder = tmp_path / f"set{trial}"
        folder.mkdir()
        (folder / "train").write_text("a file in the place of a folder")
        tars = [
            make_tar(tmp_path / f"{trial}-{i}.tar", [f"train/n{n}/{i}.txt" for n in range(8)])
            for i in range(8)
        ]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda tar, folder=folder: unpack(tar, folder), tars))
        found = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.txt"))
        assert found == sorted(f"train/n{n}/{i}.txt" for n in range(8) for i in range(8))
