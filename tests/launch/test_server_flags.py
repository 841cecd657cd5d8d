"""Jobs with parameter servers: flags, the places that follow from them, and keys."""

import os

import pytest

from fleetx.launch.arguments import parse
from fleetx.launch.fleetrun import _find_site
from fleetx.launch.job_layout import Cluster, Node
from fleetx.launch.launch_errors import LaunchError
from fleetx.runtime.server_support import (
    detect_server_support,
    read_keys,
    users_keys,
    write_keys,
)


def test_machines_are_named_by_their_roles():
    nodes = (Node("a", ("a:9",), ("0",), ("a:1",)), Node("b", (), (), ("b:1", "b:2")))
    cluster = Cluster(nodes, 0, ("a", 5), listed=("b:1", "a:1", "b:2", "a:9"))
    assert cluster.ranks(0) == "server 1, worker 0"
    assert cluster.ranks(1) == "server 0, server 2"


def site_of(*flags: str, **environment: str):
    return _find_site(parse([*flags, "train.py"], environment), environment)


def test_lists_say_what_runs_here():
    lists = ("--servers=127.0.0.1:7000,127.0.0.2:7000", "--workers=127.0.0.2,127.0.0.1:7001")
    site, devices = site_of(*lists, "--host=127.0.0.2")
    assert (site.node_count, site.node_rank, site.meeting) == (2, 1, ("127.0.0.1", 7000))
    assert site.servers == ("127.0.0.2:7000",)
    assert site.endpoints == ("127.0.0.2:6172",)
    assert site.listed[2:] == ("127.0.0.2:6172", "127.0.0.1:7001")
    assert len(devices.shares) == 1
    site, devices = site_of("--servers=127.0.0.1:7000", "--worker_num=3")
    assert (site.meeting, site.server_count, len(site.endpoints)) == (None, 1, 3)
    assert len(devices.shares) == 3


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--servers=127.0.0.1", "--worker_num=1"], "--servers: '127.0.0.1' is not of the form"),
        (["--server_num=0", "--worker_num=1"], "--server_num must be 1 or more"),
        (["--server_num=2", "--servers=h:1", "--worker_num=1"], "--server_num is 2, but --servers"),
        (["--servers=h:1,h:1", "--worker_num=1"], "--servers names h:1 more than once"),
        (["--servers=h:1", "--workers=h:1"], "--servers and --workers both name h:1"),
        (["--servers=203.0.113.5:1", "--worker_num=1"], "not an address of this machine"),
        (["--servers=127.0.0.1:1,127.0.0.2:1", "--worker_num=1"], "list the others with --workers"),
        (
            ["--server_num=1", "--worker_num=1", "--heter_worker_num=1"],
            "--heter_worker_num requests",
        ),
        (["--run_mode=rpc"], "--run_mode must be collective or ps"),
        (["--server_num=1", "--worker_num=1", "--max_server_restart=-1"], "must be 0 or more"),
        (["--server_num=1", "--worker_num=1", "--http_port=70000"], "--http_port must be from 1"),
        (["--server_num=1", "--worker_num=1", "--worker_wait=0"], "--worker_wait must be more"),
        (["--server_num=1", "--worker_num=1", "--server_memory=8X"], "a size such as 800M or 8G"),
        (["--server_num=1", "--worker_num=1", "--server_spill=d"], "give --server_memory too"),
        (["--server_memory=8G"], "--server_memory 8G is for jobs with parameter servers"),
    ],
)
def test_bad_flags(flags, sentence):
    with pytest.raises(LaunchError, match=sentence.replace("(", r"\(")):
        site_of(*flags)


class TestSupport:
    def test_a_user_has_keys_for_loopback(self, tmp_path):
        folder = tmp_path / "keys"
        first = users_keys({"a": "b"}, folder)
        assert first == {"a": "b"} == users_keys({"a": "c"}, folder)
        assert os.listdir(folder) == ["server.keys"]
        assert (folder / "server.keys").stat().st_mode & 0o077 == 0
        (folder / "server.keys").chmod(0o644)
        with pytest.raises(ValueError, match="readable by nobody else"):
            users_keys({"a": "b"}, folder)
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="need keys, and none can be kept"):
            users_keys({"a": "b"}, tmp_path / "file")

    @pytest.mark.parametrize(
        ("text", "size"), [("300", 300), ("2k", 2048), ("1.5G", 3 << 29), ("7MiB", 7 << 20)]
    )
    def test_sizes_of_memory(self, text, size):
        assert detect_server_support({"FLEETX_SERVER_MEMORY": text}).memory == size

    def test_keys_are_for_this_user_only(self, tmp_path):
        write_keys(tmp_path / "keys", {"a": "b"})
        assert (tmp_path / "keys").stat().st_mode & 0o077 == 0
        assert read_keys(tmp_path / "keys", "X") == {"a": "b"}

    @pytest.mark.parametrize(
        ("environment", "sentence"),
        [
            ({"FLEETX_SERVER_KEYS": "/nowhere/keys"}, "FLEETX_SERVER_KEYS names /nowhere/keys"),
            ({"FLEETX_SERVER_KEYS": __file__}, "which is not a key file"),
            ({"FLEETX_SERVER_FSYNC": "often"}, "FLEETX_SERVER_FSYNC must be none, interval"),
            ({"FLEETX_WORKER_WAIT": "soon"}, "FLEETX_WORKER_WAIT must be a number of seconds"),
            ({"FLEETX_SERVER_MEMORY": "much"}, "FLEETX_SERVER_MEMORY must be a size such as"),
            ({"FLEETX_SERVER_MEMORY": "0G"}, "FLEETX_SERVER_MEMORY must be a size such as"),
        ],
    )
    def test_what_is_wrong_is_named(self, environment, sentence):
        with pytest.raises(ValueError, match=sentence):
            detect_server_support(environment)
