"""Downloading data sets from a real server over HTTP, in good and bad conditions."""

import threading
from pathlib import Path

import pytest
from file_server import tar_of

import fleetx
from fleetx.data.download import choose_share, download
from fleetx.data.remote_files import DownloadError, RemoteFolder

BIG = 1 << 20


def content(folder):
    """Return the files of a folder except notes."""
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    return {n: p.read_bytes() for n, p in found.items() if not n.startswith(".downloaded/")}


def check_whole(server, folder):
    expected = {
        "meta.txt": b"five files\n",
        "big.bin": (server.folder / "set" / "big.bin").read_bytes(),
        "train/n1/1.txt": b"one",
        "train/n1/2.txt": b"two",
        "train/n2/3.txt": b"3",
        "train.txt": b"list",
        "part/c.txt": b"c",
        "empty": b"",
    }
    assert content(folder) == expected


def fetch(server, folder, **options):
    """Download as the Downloader does, without long pauses between attempts."""
    return download(
        RemoteFolder(f"{server.url}/set", tries=3, pause_seconds=0.01), folder, **options
    )


def test_whole_data_set_from_a_yaml_file_elsewhere(server, tmp_path, capsys):
    downloader = fleetx.utils.Downloader()
    folder = str(tmp_path / "data")
    assert downloader.download_from_bos(f"{server.url}/data.yaml", local_path=folder) == folder
    check_whole(server, tmp_path / "data")
    assert "downloaded 5 files" in capsys.readouterr().err
    # A second call asks for the lists only.
    server.paths.clear()
    downloader.download_from_bos(f"{server.url}/data.yaml", local_path=folder)
    assert {Path(p).name for p in server.paths} == {"data.yaml", "filelist.txt", "meta.txt"}
    check_whole(server, tmp_path / "data")


def test_data_path_and_local_folders(server, tmp_path):
    settings = tmp_path / "local.yml"
    settings.write_text(f"data_path: {server.folder}/set\n")
    fleetx.utils.Downloader().download_from_bos(str(settings), str(tmp_path / "one"))
    check_whole(server, tmp_path / "one")
    settings.write_text(f"fs.default.name: {server.url}/\ndata_path: /set\n")
    fleetx.utils.Downloader().download_from_hdfs(str(settings), str(tmp_path / "two"))
    check_whole(server, tmp_path / "two")


def test_shares_are_every_nth_file(server, tmp_path):
    for index, expected in enumerate(
        (
            {"big.bin", "train/n1/2.txt", "train/n2/3.txt", "empty"},
            {"train/n1/1.txt", "train.txt", "part/c.txt"},
        )
    ):
        folder = fetch(server, tmp_path / str(index), shard_num=2, shard_id=index)
        assert set(content(folder)) == {*expected, "meta.txt"}
    with pytest.raises(ValueError, match="shard_id=2 is out of range for shard_num=2"):
        choose_share([], 2, 2)
    with pytest.raises(ValueError, match="shard_id=0 is out of range for shard_num=-1"):
        choose_share([], -1, 0)


def test_broken_connections_are_gone_on_from(server, tmp_path):
    server.cut_after = 100_000
    folder = fetch(server, tmp_path / "data")
    server.cut_after = 0
    check_whole(server, folder)
    assert server.paths.count("/set/big.bin") > 10


def test_an_earlier_part_is_gone_on_from(server, tmp_path):
    server.cut_after = 50_000  # less than the shortest range: no attempt brings anything
    with pytest.raises(
        DownloadError, match=r"big\.bin could not be downloaded in 3 attempts.*resume"
    ):
        fetch(server, tmp_path / "data")
    assert not (tmp_path / "data" / "big.bin").exists()
    server.cut_after = 0
    whole = (server.folder / "set" / "big.bin").read_bytes()
    (tmp_path / "data" / "big.bin.part").write_bytes(whole[:1_000_000])
    server.bytes_sent = 0
    check_whole(server, fetch(server, tmp_path / "data"))
    assert server.bytes_sent < BIG - 1_000_000 + 5_000
    assert not list((tmp_path / "data").rglob("*.part"))


def test_a_part_of_another_file_is_thrown_away(server, tmp_path):
    for number, left in enumerate((b"x" * 1000, b"x" * (BIG + 1))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "big.bin.part").write_bytes(left)
        check_whole(server, fetch(server, folder))


def test_server_without_ranges(server, tmp_path):
    server.has_ranges = False
    (tmp_path / "data").mkdir()
    whole = (server.folder / "set" / "big.bin").read_bytes()
    (tmp_path / "data" / "big.bin.part").write_bytes(whole[:1000])
    check_whole(server, fetch(server, tmp_path / "data"))


def test_a_server_that_is_busy_for_a_moment(server, tmp_path):
    server.busy = 2
    check_whole(server, fetch(server, tmp_path / "data"))
    source = RemoteFolder(f"{server.url}/set", pause_seconds=0.01)
    server.busy = 3
    assert source.size("big.bin") == BIG


def test_wrong_md5_leaves_no_file(server, tmp_path):
    (server.folder / "set" / "part" / "c.txt").write_bytes(b"changed")
    with pytest.raises(DownloadError, match=r"part/c\.txt has the md5 [0-9a-f]{32}, but the list"):
        fetch(server, tmp_path / "data")
    assert not list((tmp_path / "data" / "part").iterdir())
    # A file that changed here is fetched again.
    server.write("set/part/c.txt", b"c")
    folder = fetch(server, tmp_path / "data")
    (folder / "part" / "c.txt").write_bytes(b"damaged")
    check_whole(server, fetch(server, folder))


@pytest.mark.parametrize("name", ["filelist.txt", "meta.txt", "big.bin"])
def test_a_missing_file_is_named(server, tmp_path, name):
    (server.folder / "set" / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"/set holds no file {name}"):
        fetch(server, tmp_path / "data")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("c.txt", "line 1: expected 'file md5'"),
        ("c.txt 123", "line 1: expected 'file md5'"),
        ("../c.txt " + "0" * 32, r"line 1: ../c.txt is not inside the folder"),
        ("c 0{31}\nc 0{31}".replace("{31}", "0" * 31), "line 2: c is already on line 1"),
        ("", "lists no files"),
    ],
)
def test_wrong_lists(server, tmp_path, line, problem):
    server.write("set/filelist.txt", line.encode())
    with pytest.raises(ValueError, match=problem):
        fetch(server, tmp_path / "data")


def test_a_tar_that_leaves_its_folder_unpacks_nothing(server, tmp_path):
    evil = tar_of({"good.txt": b"good", "../evil.txt": b"evil"})
    server.write("set/filelist.txt", server.write("set/x.tar", evil).removeprefix("set/").encode())
    with pytest.raises(ValueError, match=r"x\.tar cannot be unpacked; nothing was written"):
        fetch(server, tmp_path / "data")
    assert not (tmp_path / "evil.txt").exists()
    assert set(content(tmp_path / "data")) == {"meta.txt", "x.tar"}


def test_processes_of_one_machine_download_once(server, tmp_path):
    threads = [threading.Thread(target=fetch, args=(server, tmp_path / "data")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_whole(server, tmp_path / "data")
    assert server.paths.count("/set/big.bin") == 1


def test_what_cannot_be_reached_or_read(server, tmp_path):
    downloader = fleetx.utils.Downloader()
    with pytest.raises(ValueError, match=r"path or address of a \.yml or \.yaml file, not None"):
        downloader.download_from_bos()
    with pytest.raises(FileNotFoundError, match=r"no file absent\.yaml"):
        downloader.download_from_bos("absent.yaml")
    settings = tmp_path / "set.yaml"
    for text, problem in [
        ("a: [", "is not YAML"),
        ("- a", "has no keys"),
        ("other: 1", "has no bos_path"),
    ]:
        settings.write_text(text)
        with pytest.raises(ValueError, match=problem):
            downloader.download_from_bos(str(settings))
    with pytest.raises(ValueError, match=r"has no data_path, which download_from_hdfs needs"):
        downloader.download_from_hdfs(str(settings))
    with pytest.raises(ValueError, match="Protocol not known: afs"):
        RemoteFolder("afs://host/data")
    closed = RemoteFolder("http://127.0.0.1:9/data", tries=2, pause_seconds=0.01)
    with pytest.raises(DownloadError, match="could not be read in 2 attempts"):
        download(closed, tmp_path / "data")


def test_a_missing_package_of_a_protocol_is_named(tmp_path):
    for protocol, package in (("s3", "s3fs"), ("bos", "s3fs")):
        pytest.importorskip("fsspec")
        try:
            import s3fs  # noqa: F401
        except ImportError:
            with pytest.raises(ModuleNotFoundError, match=rf"{protocol}://.*{package}"):
                RemoteFolder(f"{protocol}://bucket/data")
