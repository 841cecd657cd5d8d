"""Checksums beside files in Paddle's formats: every flip is found, every crash is survived."""

import os
import random
import shutil

import numpy as np
import pytest
from tiny_network import Network

from fleetx import static
from fleetx.checkpoint import FormatError
from fleetx.checkpoint.atomic import atomic_write
from fleetx.checkpoint.side_checksums import describe_beside, side_file, verify


def flips(path, count=25):
    content = path.read_bytes()
    generator = random.Random(len(content))
    for _ in range(count):
        damaged = bytearray(content)
        damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        yield
    path.write_bytes(content)


def test_no_flip_of_a_saved_model_is_loaded(tmp_path):
    net = Network().start()
    executor, main = net.exe, net.main
    static.io.save_inference_model(tmp_path / "m", [net.x], [net.y], executor, program=main)
    static.io.save_inference_dir(
        tmp_path / "dir", ["x"], [net.y], executor, main, params_filename="params"
    )
    static.io.save_persistables(executor, tmp_path / "all", main, "together")
    static.io.save(main, tmp_path / "state")
    static.io.save_object({"w": np.ones(40)}, tmp_path / "object.pd")
    loads = {
        "m.pdmodel": lambda: static.io.load_inference_model(tmp_path / "m", executor),
        "m.pdiparams": lambda: static.io.load_inference_model(tmp_path / "m", executor),
        "all/together": lambda: static.io.load_persistables(
            executor, tmp_path / "all", main, "together"
        ),
        "state.pdparams": lambda: static.io.load(main, tmp_path / "state", executor),
        "object.pd": lambda: static.io.load_object(tmp_path / "object.pd"),
    }
    for path in (tmp_path / "dir").iterdir():
        if path.is_file():
            loads[f"dir/{path.name}"] = lambda: static.io.load_inference_dir(
                tmp_path / "dir", executor, params_filename="params"
            )
    assert len(loads) > 6
    for name, load in loads.items():
        load()
        for _ in flips(tmp_path / name):
            with pytest.raises(FormatError, match="does not match its checksum"):
                load()
        load()
    shutil.rmtree(tmp_path / ".fleetx")  # what has no checksums is read as before
    loads["m.pdiparams"]()


def test_either_file_of_a_crash_is_accepted_and_no_other(tmp_path):
    path = tmp_path / "x"
    assert not path.exists()
    for content in (b"one", b"two"):
        with atomic_write(path, describe_beside) as stream:
            stream.write(content)
    for content in (b"one", b"two"):
        path.write_bytes(content)
        assert verify(path)
    for content in (b"", b"three"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="remove that file to load it anyway"):
            verify(path)
    side = side_file(path)
    for _ in flips(side):
        with pytest.raises(FormatError, match="does not match its checksum"):
            verify(path)
    side.unlink()
    assert not verify(path)


def test_a_failed_save_changes_neither(tmp_path):
    path = tmp_path / "x"
    with atomic_write(path, describe_beside) as stream:
        stream.write(b"one")
    before = side_file(path).read_bytes()

    def fail():
        with atomic_write(path, describe_beside) as stream:
            stream.write(b"two")
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        fail()
    assert side_file(path).read_bytes() == before
    assert verify(path)
    assert sorted(os.listdir(tmp_path)) == [".fleetx", "x"]


def test_folders_of_variables_contain_nothing_else(tmp_path):
    # load_program_state of Paddle takes every file below such a folder for a variable.
    net = Network().start()
    static.io.save_persistables(net.exe, tmp_path / "vars", net.main)
    names = {v.name for v in net.main.list_vars() if static.io.is_persistable(v)}
    assert {path.name for path in (tmp_path / "vars").rglob("*")} == names
