"""The memory of a request is limited by default: the request fails, the server keeps running."""

import re
from pathlib import Path

import pytest
from serving_process import serving

from fleetx import static
from fleetx.serving import memory_limit
from fleetx.serving.memory_limit import LEAST_ROOM, free_memory, limit_memory
from fleetx.static import io, layers

ROW = 1 << 20
"""Sizes are 32-bit numbers in a program, and too small for the memory of large machines."""


@pytest.fixture
def limits(monkeypatch):
    """Limits that are set, but not in the process of the tests."""
    found = []
    monkeypatch.setattr(
        memory_limit.resource, "setrlimit", lambda kind, pair: found.append(pair[0])
    )
    return found


def test_the_limit_follows_the_machine_unless_it_is_set(limits):
    assert limit_memory(0) is None
    assert limits == []
    assert limit_memory(5 << 30) == 5 << 30
    data = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
    assert limit_memory(None) >= min(data, 1 << 20) + LEAST_ROOM
    assert limits == [5 << 30, limits[1]]
    total = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) << 10
    assert 0 < free_memory() < total


@pytest.mark.slow
def test_a_program_that_allocates_too_much_fails_and_the_server_goes_on(tmp_path):
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        size = static.data("size", [1], "int64")
        made = layers.reduce_sum(layers.fill_constant([size, ROW], "float32", 1.0))
    executor = static.Executor()
    io.save_inference_model(tmp_path / "m", [size], [made], executor, program=main)
    with serving(tmp_path / "m.pdmodel") as server:
        limit = int(re.search(r"memory limit (\d+) MB", server.said)[1]) << 20
        answer = server.predict({"size": [limit // (4 * ROW) + 1]})  # float32
        assert (answer.status, "allocate" in answer.json()["error"]) == (500, True), answer.body
        answer = server.predict({"size": [3]})
        assert answer.json()["outputs"].popitem()[1] in (3.0 * ROW, [3.0 * ROW]), answer.body
