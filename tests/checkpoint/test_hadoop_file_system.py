"""Files behind `hadoop fs`, with a command that keeps them in a local folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fleetx.checkpoint.file_system import FSFileExistsError, FSFileNotExistsError
from fleetx.checkpoint.hadoop_file_system import (
    ExecuteError,
    HadoopFS,
    HadoopFSOf18,
    multi_download,
    multi_upload,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with `bin/hadoop`."""
    (tmp_path / "home" / "bin").mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "hadoop", tmp_path / "home" / "bin" / "hadoop")
    return tmp_path / "home"


def test_files_of_2x(home: Path, tmp_path: Path) -> None:
    fs = HadoopFS(str(home), {"fs.default.name": "hdfs://nowhere"})
    folder = str(tmp_path / "remote" / "a")
    assert not fs.is_exist(folder)
    assert fs.ls_dir(folder) == ([], [])
    fs.mkdirs(f"{folder}/inner")
    (tmp_path / "x.txt").write_text("hello\n")
    fs.upload(str(tmp_path / "x.txt"), f"{folder}/x.txt")
    fs.touch(f"{folder}/empty")
    assert fs.ls_dir(folder) == (["inner"], ["empty", "x.txt"])
    assert fs.is_dir(folder)
    assert fs.is_file(f"{folder}/x.txt")
    assert fs.cat(f"{folder}/x.txt") == "hello"
    with pytest.raises(FSFileExistsError):
        fs.upload(str(tmp_path / "x.txt"), f"{folder}/x.txt")
    fs.mv(f"{folder}/x.txt", f"{folder}/y.txt")
    fs.download(f"{folder}/y.txt", str(tmp_path / "y.txt"))
    assert (tmp_path / "y.txt").read_text() == "hello\n"
    fs.delete(folder)
    assert not fs.is_exist(folder)
    with pytest.raises(FSFileNotExistsError):
        fs.download(folder, str(tmp_path / "z"))
    assert fs.need_upload_download()


def test_files_of_18(home: Path, tmp_path: Path) -> None:
    fs = HadoopFSOf18(str(home), {})
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for name in ("0", "1", "deep/2"):
        (tmp_path / "data" / name).write_text(name)
    remote = str(tmp_path / "remote")
    multi_upload(fs, remote, str(tmp_path / "data"), multi_processes=2)
    assert fs.lsr(remote) == [f"{remote}/0", f"{remote}/1", f"{remote}/deep/2"]
    assert fs.ls(remote) == [f"{remote}/0", f"{remote}/1", f"{remote}/deep"]
    mine = multi_download(fs, remote, str(tmp_path / "mine"), trainer_id=1, trainers=2)
    assert [Path(path).read_text() for path in mine] == ["1"]
    assert fs.upload(f"{remote}/0", str(tmp_path / "data" / "1"), overwrite=True)
    assert fs.cat(f"{remote}/0") == "1"
    assert fs.rename(f"{remote}/0", f"{remote}/1", overwrite=True)
    assert fs.makedirs(f"{remote}/more")
    assert fs.is_dir(f"{remote}/more")


def test_a_failing_command_is_quoted(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ExecuteError, match=r"hadoop fs -mv .*/no .*/yes failed: mv: "):
        HadoopFS(str(home), {}).rename(str(tmp_path / "no"), str(tmp_path / "yes"))
    with pytest.raises(ExecuteError, match="bin/hadoop was not found; hadoop_home must be"):
        HadoopFS("/nowhere", {}).is_exist("x")


def test_the_command_of_the_path(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"), prepend=os.pathsep)
    (tmp_path / "file").write_text("text")
    assert HadoopFS(None, {"fs.default.name": "hdfs://x"}).cat(str(tmp_path / "file")) == "text"
