"""The files by which tables move: what is damaged or cannot be is an error that names the file."""

import json
import zlib

import pytest

from fleetx.runtime.layout_folder import (
    MOST_SERVERS,
    LayoutFolder,
    ServerLayout,
    handed_over,
    is_handover,
    mark_whole,
)

LAYOUT = ServerLayout(1, ("10.0.0.1:6170", "10.0.0.2:6170"), 2, 3)


def write(path, value):
    """Write a file with a valid checksum, whatever is in it."""
    crc = zlib.crc32(json.dumps(value, sort_keys=True).encode())
    path.write_text(json.dumps({**value, "crc32": crc}))


FIELDS = {"generation": 1, "endpoints": ["10.0.0.1:6170"], "cut": 1, "workers": 1}


@pytest.mark.parametrize(
    "change",
    [
        *({"generation": value} for value in (-1, True, 1.0, "1", None, 1 << 63)),
        *({"cut": value} for value in (0, [], 2.5)),
        *({"workers": value} for value in (0, "2")),
        *({"endpoints": value} for value in ([], "10.0.0.1:6170", [3], ["x"], ["a:0"], None)),
        *({"endpoints": value} for value in (["a:70000"], ["a:1", "a:1"], {"a:1": 1})),
        {"endpoints": [f"a:{port}" for port in range(1, MOST_SERVERS + 2)]},
        {"more": 1},
    ],
    ids=repr,
)
def test_fields_of_a_layout_are_checked(tmp_path, change):
    files = LayoutFolder(tmp_path)
    write(tmp_path / "plan.json", {**FIELDS, **change})
    with pytest.raises(ValueError, match=r"plan\.json is damaged"):
        files.read_plan()
    write(tmp_path / "plan.json", FIELDS)
    assert files.read_plan() == ServerLayout(1, ("10.0.0.1:6170",), 1, 1)


@pytest.mark.parametrize("text", [b"", b"[" * 200_000, b"3", b"{}", b"\xff", b" " * (2 << 20)])
def test_files_that_are_none_are_damaged(tmp_path, text):
    files = LayoutFolder(tmp_path)
    for name in ("layout.json", "request.json"):
        (tmp_path / name).write_bytes(text)
    with pytest.raises(ValueError, match=r"layout\.json is damaged"):
        files.read()
    with pytest.raises(ValueError, match=r"request\.json is damaged"):
        files.wanted()
    files.settle(None)
    assert files.wanted() is None


def test_every_flipped_bit_of_a_layout_is_found(tmp_path):
    files = LayoutFolder(tmp_path)
    files.write(LAYOUT)
    path = tmp_path / "layout.json"
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = files.read()
        except ValueError:
            continue
        assert found == LAYOUT  # a space that became another one


@pytest.mark.parametrize("count", [0, -1, True, "3", None, MOST_SERVERS + 1, 1e3])
def test_numbers_of_servers_are_checked(tmp_path, count):
    files = LayoutFolder(tmp_path)
    write(tmp_path / "request.json", {"servers": count})
    with pytest.raises(ValueError, match=r"request\.json is damaged: it asks for"):
        files.wanted()
    write(tmp_path / "whole", {"servers": count})
    with pytest.raises(ValueError, match="whole is damaged"):
        handed_over(tmp_path)
    mark_whole(tmp_path, 3)
    assert handed_over(tmp_path) == 3
    with pytest.raises(ValueError, match=f"from 1 to {MOST_SERVERS} servers"):
        files.ask_for(0)


def test_a_plan_without_its_launcher_becomes_a_request(tmp_path):
    """Only if the tables have not moved; what somebody has asked for later stays."""
    files = LayoutFolder(tmp_path)
    files.write(LAYOUT)
    files.write_plan(ServerLayout(2, ("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"), 2))
    files.interrupt()
    assert files.read_plan() is None
    assert files.wanted() == 3
    files.ask_for(4)
    files.settle(3)
    assert files.wanted() == 4
    files.settle(4)
    files.write_plan(ServerLayout(1, ("10.0.0.1:1",), 2))
    files.interrupt()
    assert (files.read_plan(), files.wanted()) == (None, None)


def test_folders_of_a_handover(tmp_path):
    files = LayoutFolder(tmp_path)
    assert is_handover(files.handover(2), 2)
    for wrong in (
        *(files.handover(1), tmp_path / "x", tmp_path / "none/handover-2", tmp_path),
        *(files.handover(2).relative_to("/"), tmp_path / ("x" * 5000) / "handover-2"),
        *(tmp_path / "\0/handover-2", tmp_path / "\ud800/handover-2"),
    ):
        assert not is_handover(wrong, 2)
