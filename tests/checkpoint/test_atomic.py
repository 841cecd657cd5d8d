import os
import resource
import subprocess
import sys

import pytest

from fleetx.checkpoint.atomic import atomic_files, atomic_write, inside, write_bytes


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_write_creates_folders_and_leaves_only_the_target(tmp_path):
    write_bytes(tmp_path / "a" / "b" / "model", b"content")
    assert (tmp_path / "a" / "b" / "model").read_bytes() == b"content"
    assert files_in(tmp_path) == ["a/b/model"]


def test_exception_keeps_the_old_file(tmp_path):
    target = tmp_path / "model"
    target.write_bytes(b"old")

    def write_half():
        with atomic_write(target) as stream:
            stream.write(b"half of the new")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_half()
    assert target.read_bytes() == b"old"
    assert files_in(tmp_path) == ["model"]


def test_full_disk_keeps_the_old_file(tmp_path):
    target = tmp_path / "model"
    target.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write_bytes(target, bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.read_bytes() == b"old"
    assert files_in(tmp_path) == ["model"]


@pytest.mark.slow
def test_killed_writer_keeps_the_old_file(tmp_path):
    target = tmp_path / "model"
    target.write_bytes(b"old")
    code = (
        "import os, signal, sys\n"
        "from fleetx.checkpoint.atomic import atomic_write\n"
        "with atomic_write(sys.argv[1]) as stream:\n"
        "    stream.write(b'half'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == -9
    assert target.read_bytes() == b"old"


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_bytes(tmp_path / "model", b"")
    finally:
        os.umask(old)
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o640


def test_symbolic_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_folder_as_target_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_bytes(tmp_path, b"")


def test_set_of_files_appears_together(tmp_path):
    with atomic_files(tmp_path / "set") as files:
        files.write("a", b"1")
        files.write("scope/b", b"2")
        assert not (tmp_path / "set" / "a").exists()
    assert files_in(tmp_path) == ["set/a", "set/scope/b"]


def test_set_of_files_appears_not_at_all_on_error(tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def write_some():
        with atomic_files(tmp_path) as files:
            files.write("a", b"new")
            files.write("b", b"new")
            with files.open("c") as stream:
                stream.write(b"half")
                raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_some()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert files_in(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["", "../x", "a/../../x", "/etc/x", "folder/"])
def test_names_stay_inside_the_folder(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        inside(tmp_path, name)
    problem = "cannot be the name of a file"
    with atomic_files(tmp_path) as files, pytest.raises(ValueError, match=problem):
        files.write(name, b"")
