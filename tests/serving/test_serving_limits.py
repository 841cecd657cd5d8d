"""Clients and models that exceed limits: each limit holds, and the server keeps running."""

import asyncio
import contextlib
import json
import pickle
import resource
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from serving_process import JSON, serving

from fleetx import static
from fleetx.checkpoint import FormatError
from fleetx.serving import RequestError, ServeSettings, TensorSpec, load_model
from fleetx.serving.batching import Batcher
from fleetx.serving.bodies import decode_json, decode_raw
from fleetx.serving.deadline import Deadline, DeadlineExceeded
from fleetx.serving.engines import Engine
from fleetx.serving.engines.onnx import external_files
from fleetx.serving.json_process import SMALL, JsonProcess
from fleetx.serving.model import ServedModel
from fleetx.serving.request_reading import BodyBudget
from fleetx.serving.server_metrics import Metrics
from fleetx.serving.tensor_spec import check_arrays
from fleetx.static import io, layers
from waiting import LIMIT

SPEC = TensorSpec("x", (-1, 2), "float32")


# -- bodies ---------------------------------------------------------------------------------------
def test_unequal_texts_take_no_more_than_their_own_size():
    texts = ["a" * (1000 if number == 0 else 1) for number in range(200_000)]
    body = json.dumps({"inputs": {"x": texts}}).encode()
    tracemalloc.start()
    with pytest.raises(RequestError, match="not strings"):
        decode_json(body, [SPEC])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(body)


def test_names_may_have_quotes():
    spec = TensorSpec('a "b"', (-1,), "float32")
    assert decode_json(json.dumps({"inputs": {'a "b"': [1.0]}}).encode(), [spec])


@pytest.mark.parametrize("dimensions", [33, 65, 80, 5000])
def test_many_dimensions_are_an_error_of_the_client(dimensions):
    header = {"x": {"dtype": "F32", "shape": [1] * dimensions, "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    with pytest.raises(RequestError, match="dimensions") as caught:
        decode_raw(len(text).to_bytes(8, "little") + text + bytes(4))
    assert caught.value.status == 400
    nested = "[" * dimensions + "1" + "]" * dimensions
    with pytest.raises(RequestError) as caught:
        check_arrays([SPEC], decode_json(f'{{"inputs": {{"x": {nested}}}}}'.encode(), [SPEC]))
    assert caught.value.status == 400


def test_all_bodies_together_have_a_limit():
    budget = BodyBudget(100)
    with budget.share() as one, budget.share() as two:
        one(60)
        two(40)
        with pytest.raises(RequestError) as caught:
            two(1)
        assert (caught.value.status, caught.value.retry_after) == (503, 1)
    assert budget.used == 0
    with pytest.raises(ValueError, match="max_bodies"):
        ServeSettings(max_body=100, max_bodies=99)
    with pytest.raises(ValueError, match="run_seconds"):
        ServeSettings(run_seconds=0)


def test_large_json_is_read_while_the_event_loop_goes_on():
    values = np.arange(200_000, dtype=np.float32).reshape(-1, 2)
    body = bytearray(json.dumps({"inputs": {"x": values.tolist()}}).encode())
    assert len(body) > SMALL

    async def convert():
        process = JsonProcess()
        try:
            found = await process.decode(body, [SPEC])
            assert np.array_equal(found["x"], values)
            text = await process.encode(found, {"version": "v"})
            assert json.loads(text)["outputs"]["x"] == values.tolist()
            with pytest.raises(RequestError, match="not JSON"):
                await process.decode(bytearray(b"[" * (SMALL + 1)), [SPEC])
            # A process that ends is an answer, and is replaced.
            for each in process._pool._processes.values():
                each.kill()
            with pytest.raises(RequestError, match="has ended"):
                await process.decode(body, [SPEC])
            assert np.array_equal((await process.decode(body, [SPEC]))["x"], values)
        finally:
            process.close()

    asyncio.run(convert())


# -- time -----------------------------------------------------------------------------------------
def test_a_model_that_loops_for_ever_is_ended():
    calls = []

    def call(values):
        calls.append(1)
        while len(calls) == 1:
            with contextlib.suppress(Exception):  # a model's handlers do not stop the deadline
                time.sleep(0)
        return values

    model = ServedModel(Path("made.pt2"), Engine((SPEC,), (SPEC,), (), call), version="v1")

    async def ask():
        batcher = Batcher(
            model, ServeSettings(max_batch=8, max_delay=0, run_seconds=1.0), Metrics()
        )
        rows = {"x": np.ones((1, 2), np.float32)}
        with pytest.raises(RequestError, match=r"longer than 1 seconds") as caught:
            await batcher.submit(rows)
        assert caught.value.status == 504
        for _ in range(3):
            assert (await batcher.submit(rows))["x"].tolist() == [[1.0, 1.0]]
        batcher.close()

    asyncio.run(ask())


def test_a_deadline_leaves_nothing_behind():
    deadline = Deadline()

    def ends_late(catches):
        with contextlib.suppress(DeadlineExceeded if catches else ZeroDivisionError):
            deadline.interrupt(deadline.number)
            time.sleep(0)
        return "done"

    with pytest.raises(DeadlineExceeded):
        deadline.run(ends_late, False)
    assert deadline.run(ends_late, True) == "done"
    assert deadline.run(str, 1) == "1"
    deadline.interrupt(deadline.number)  # too late


@pytest.mark.slow
def test_threads_can_be_profiled_after_a_request():
    # With an order to look for exceptions left in force, the thread would not end in Python 3.11.
    script = """
import sys, threading
from fleetx.serving.deadline import Deadline

def profiled():
    sys.setprofile(lambda *_: None)
    print(str(1), flush=True)
    sys.exit()

Deadline().run(str, 1)
thread = threading.Thread(target=lambda: profiled())
thread.start()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert done.stdout == "1\n"


# -- models ---------------------------------------------------------------------------------------
class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


@pytest.fixture
def pt2(tmp_path):
    rows = {"input": {0: torch.export.Dim("rows")}}
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(2, 2),), dynamic_shapes=rows)
    torch.export.save(program, tmp_path / "net.pt2")
    return tmp_path / "net.pt2"


def rewritten(source, target, change):
    """Copy an archive, with members changed by a function of name and content."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return target


@pytest.mark.parametrize("place", ["sample_inputs", "weights", "constants", "twice", "library"])
def test_a_pt2_file_with_code_is_refused_and_not_run(pt2, tmp_path, place):
    mark = tmp_path / "mark"
    evil = pickle.dumps(Evil(mark))
    path = tmp_path / "evil.pt2"
    load_model(pt2)

    def change(name, content):
        if place == "sample_inputs" and "sample_inputs" in name:
            return evil
        if place == "weights" and name.endswith("weights_config.json"):
            return content.replace(b'"use_pickle": false', b'"use_pickle": true')
        if place == "weights" and "weights/weight_" in name:
            return evil
        return content

    rewritten(pt2, path, change)
    more = {
        "constants": ("net/data/constants/opaque_obj_0", evil),
        "library": ("net/data/aotinductor/model/x.so", b"\x7fELF"),
        "twice": ("net/data/sample_inputs/model.pt", evil),
    }
    if place in more:
        with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings(action="ignore"):
            archive.writestr(*more[place])
    with pytest.raises(FormatError, match="rejected"):
        load_model(path)
    assert not mark.exists()


def test_a_program_that_does_more_than_compute_is_refused(tmp_path):
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [-1, 2], "float32")
        y = layers.fc(x, 2)
    executor = static.Executor()
    executor.run(startup)
    io.save_inference_model(tmp_path / "net", [x], [y], executor, program=main)
    assert load_model(tmp_path / "net")
    with static.program_guard(main, startup):
        loaded = main.global_block().create_var(name="secret", shape=[1], dtype="float32")
        main.global_block()._insert_op(
            0, type="load", outputs={"Out": [loaded]}, attrs={"file_path": "/etc/hostname"}
        )
        z = layers.elementwise_add(y, loaded)
    io.save_inference_model(tmp_path / "evil", [x], [z], executor, program=main)
    with pytest.raises(FormatError, match="contains the op 'load'"):
        load_model(tmp_path / "evil")


def test_the_checksum_of_onnx_covers_external_data_of_any_name(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "net.onnx"
    onnx.save_model(
        model, path, save_as_external_data=True, location="other.name", size_threshold=0
    )
    assert external_files(path) == [tmp_path / "other.name"]
    before = load_model(path).checksum
    (tmp_path / "other.name").write_bytes(np.full((2, 2), 2.0, np.float32).tobytes())
    assert load_model(path).checksum != before
    found = onnx.load(path, load_external_data=False)
    found.graph.initializer[0].external_data[0].value = "../other.name"
    onnx.save(found, path)
    with pytest.raises(FormatError):
        load_model(path)


# -- a real server --------------------------------------------------------------------------------
def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def answer_to(port, data):
    """Send bytes, and return the first line of the answer, which may come before the last byte."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        with contextlib.suppress(OSError):  # the server has closed it while it was sent
            connection.sendall(data)
        with contextlib.suppress(OSError):
            return connection.recv(1000).split(b"\r\n")[0]
        return b""


@pytest.mark.slow
def test_headers_have_limits_of_size_and_time(pt2):
    with serving(pt2) as server:
        pid = server.process.pid
        before = resident(pid)
        endless = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (20 << 20)
        answer_to(server.port, endless)
        many = b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * (1 << 20)
        answer_to(server.port, many)
        long = b"GET /" + b"a" * (1 << 20)
        answer_to(server.port, long)
        assert resident(pid) - before < 64 << 20
        fits = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 5000 + b"\r\n\r\n"
        assert b" 200 " in answer_to(server.port, fits)
        whole = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (1 << 17) + b"\r\n\r\n"
        assert b" 431 " in answer_to(server.port, whole)
        half = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
        for each in half[1:]:
            each.sendall(b"GET /health HTTP/1.1\r\nHo")
        for number, each in enumerate(half):
            assert each.recv(1000).startswith(b"HTTP/1.1 408") == (number > 0)
            each.close()
        assert server.ask("GET", "/health").status == 200


@pytest.mark.slow
def test_health_answers_while_large_json_is_read(pt2):
    rows = [[1.5, 2.5]] * 700_000
    body = json.dumps({"inputs": {"input": rows}}).encode()
    with serving(pt2, "--max_batch", 10**6) as server:
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(
                server.ask("POST", "/v1/predict", body, {"Content-Type": JSON})
            )
        )
        thread.start()
        asked = 0
        while thread.is_alive():
            assert server.ask("GET", "/health").status == 200
            asked += 1
        thread.join()
        assert answers[0].status == 200, answers[0].body[:200]
        assert asked > 2  # many answers during one long reading
