"""Checkpoints in remote folders: no renames, no locks, the manifest last."""

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

import fsspec
import fsspec.asyn
import pytest
import torch

from fleetx import fleet
from fleetx.checkpoint import FormatError
from fleetx.checkpoint.remote_folder import RemoteFolder
from fleetx.fleet.saving import checkpoints
from waiting import LIMIT


@pytest.fixture
def root():
    """The address of a folder in memory, which all file systems of this process share."""
    path = f"/{secrets.token_hex(6)}"
    yield f"memory:/{path}"
    memory = fsspec.filesystem("memory")
    if memory.exists(path):
        memory.rm(path, recursive=True)


@pytest.fixture(scope="session")
def s3_settings():
    """A server that speaks S3, with a bucket."""
    from moto.server import ThreadedMotoServer

    # The threads of fsspec's loop stay until it ends: give them a name, and an end.
    with ThreadPoolExecutor(4, thread_name_prefix="fsspecIO-executor") as executor:
        loop, ready = fsspec.asyn.get_loop(), threading.Event()
        loop.call_soon_threadsafe(lambda: (loop.set_default_executor(executor), ready.set()))
        assert ready.wait(LIMIT)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        address = "http://{}:{}".format(*server.get_host_and_port())
        settings = {"endpoint_url": address, "key": "test", "secret": "test"}
        fsspec.filesystem("s3", **settings, skip_instance_cache=True).mkdir("bucket")
        yield settings
        server.stop()


def states(step):
    return {"w": torch.full((500,), float(step)), "empty": torch.zeros(0), "step": step}


def step_of(found):
    assert torch.equal(found["w"], torch.full((500,), float(found["step"])))
    return found["step"]


def numbers(root):
    return list(checkpoints.store_at(root).numbered())


def save_load_and_remove(root):
    assert checkpoints.load(root) is None
    for step in range(3):
        assert checkpoints.save(root, states(step), keep=1, every=2) == f"{root}/checkpoint.{step}"
    assert numbers(root) == [0, 2]
    assert step_of(checkpoints.load(root)) == 2


def test_what_was_saved_is_loaded(root):
    save_load_and_remove(root)
    memory = fsspec.filesystem("memory")
    assert not [path for path in memory.find(root) if path.endswith(("claim", "part.json"))]


@pytest.mark.slow
def test_the_same_on_s3(s3_settings, monkeypatch):
    monkeypatch.setitem(fsspec.config.conf, "s3", s3_settings)
    save_load_and_remove("s3://bucket/folder")
    folder = checkpoints.store_at("s3://bucket/folder").unfinished(7, 0)
    assert folder.create_exclusively("claim", b"one")
    assert not folder.create_exclusively("claim", b"two")
    assert folder.read("claim") == b"one"


def test_what_has_no_manifest_is_ignored(root):
    checkpoints.save(root, states(0))
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"{root}/checkpoint.1/worker.0/tensors.safetensors", b"half")
    assert step_of(checkpoints.load(root)) == 0
    checkpoints.save(root, states(2))  # does not take the number of one that may still be written
    assert numbers(root) == [0, 2]
    assert memory.exists(f"{root}/checkpoint.1")
    for step in (3, 4, 5):
        checkpoints.save(root, states(step))
    assert not memory.exists(f"{root}/checkpoint.1")
    assert step_of(checkpoints.load(root)) == 5


@pytest.mark.parametrize("name", ["manifest.json", "worker.0/tensors.safetensors"])
def test_a_damaged_file_is_left_out(root, name):
    for step in range(2):
        checkpoints.save(root, states(step))
    memory, path = fsspec.filesystem("memory"), f"{root}/checkpoint.1/{name}"
    content = bytearray(memory.cat_file(path))
    content[-3] ^= 1
    memory.pipe_file(path, bytes(content))
    assert step_of(checkpoints.load(root)) == 0
    memory.rm_file(f"{root}/checkpoint.0/worker.0/state.json")
    with pytest.raises(FormatError, match="no whole checkpoint"):
        checkpoints.load(root)


def test_a_claimed_number_is_not_used_again(root):
    store = checkpoints.store_at(root)
    assert store.unfinished(0, 0).create_exclusively("claim", b"somebody else")
    assert checkpoints.save(root, states(1)) == f"{root}/checkpoint.1"


def test_a_save_that_fails_leaves_nothing(root):
    with pytest.raises(TypeError, match="is a object"):
        checkpoints.save(root, {"bad": object()})
    assert not fsspec.filesystem("memory").find(root)


def test_a_crash_while_one_is_removed_leaves_no_half_checkpoint(root, monkeypatch):
    def crash(self):
        raise KeyboardInterrupt

    checkpoints.save(root, states(0))
    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "remove_all", crash)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(root, states(1), keep=1)
    assert fsspec.filesystem("memory").exists(f"{root}/checkpoint.0")
    assert numbers(root) == [1]
    assert step_of(checkpoints.load(root)) == 1


def test_sessions_save_to_remote_folders_in_the_background(root, fresh_fleet):
    fleet.init(is_collective=True)
    fleet.save_checkpoint(root, blocking=False, value=torch.ones(3))
    assert fleet.wait_for_checkpoint() == f"{root}/checkpoint.0"
    assert fleet.load_checkpoint(root)["value"].sum() == 3


def test_addresses_of_this_machine_are_folders(tmp_path):
    assert checkpoints.save(f"file://{tmp_path}", states(1)) == tmp_path / "checkpoint.0"


def test_an_unknown_address_is_explained():
    with pytest.raises(ValueError, match="'nothing://here' cannot be opened .* such as s3://"):
        checkpoints.save("nothing://here", states(1))
