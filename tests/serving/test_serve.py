"""`fleetx serve` as a process: what it answers over HTTP, and how it ends."""

import json
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import load, save
from serving_process import JSON, RAW, command, environment, serving

from fleetx import cli
from fleetx.serving import load_model
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers


@pytest.fixture(scope="module")
def server(folder):
    """A server with small limits."""
    with serving(folder / "two", "--max_batch", 8, "--max_body_mb", 1, "--max_delay_ms", 20) as it:
        yield it
        assert it.stop() == 0


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder / "two")


@pytest.fixture(scope="module")
def local(model, inputs):
    return model.run(inputs)


def raw(rows, dtype):
    return save({"x": np.zeros((rows, 4), dtype), "word": np.zeros((rows, 1), "int64")})


def assert_same(outputs, local):
    assert outputs.keys() == local.keys()
    for name, value in local.items():
        np.testing.assert_allclose(np.array(outputs[name]), value, rtol=1e-5, atol=1e-6)


def test_json_and_raw_bodies_give_what_a_local_run_gives(server, model, inputs, local):
    identity = {"version": model.version, "checksum": model.checksum}
    answer = server.predict(inputs)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == JSON
    assert answer.json()["model"] == identity
    assert_same(answer.json()["outputs"], local)
    for mime in (RAW, "application/octet-stream"):
        answer = server.predict_raw(save(inputs), {"Content-Type": mime})
        assert answer.headers["Content-Type"] == RAW
        assert answer.headers["X-Model-Version"] == model.version
        assert answer.headers["X-Model-Checksum"] == model.checksum
        assert_same(load(answer.body), local)
    header = json.loads(answer.body[8 : 8 + int.from_bytes(answer.body[:8], "little")])
    assert header["__metadata__"] == identity


def test_kind_of_answer_can_be_chosen(server, inputs, local):
    assert_same(load(server.predict(inputs, {"Accept": RAW}).body), local)
    accept = {"Accept": "text/html, application/json;q=0.9"}
    assert_same(server.predict_raw(save(inputs), accept).json()["outputs"], local)


@pytest.mark.parametrize(
    ("status", "sentence", "body", "headers"),
    [
        (400, "the body is not JSON", b"{", {}),
        (400, "input 'word' is missing", b'{"inputs": {"x": [[1, 2, 3, 4]]}}', {}),
        (400, "no input 'z'", b'{"inputs": {"z": 1}}', {}),
        (
            400,
            "input 'x' has the shape [1, 3], but the model takes float32 [any, 4].",
            b'{"inputs": {"x": [[1, 2, 3]], "word": [[1]]}}',
            {},
        ),
        (400, "'word' holds fractions", b'{"inputs": {"x": [[1, 2, 3, 4]], "word": [[0.5]]}}', {}),
        (400, "'x' has no rows", raw(0, "float32"), {"Content-Type": RAW}),
        (400, "input 'x' holds float64", raw(1, "float64"), {"Content-Type": RAW}),
        (400, "too short for a header", b"", {"Content-Type": RAW}),
        (500, "the model failed", b'{"inputs": {"x": [[1, 2, 3, 4]], "word": [[99]]}}', {}),
        (415, "Content-Type is text/plain", b"1", {"Content-Type": "text/plain"}),
        (415, "Content-Encoding", b"1", {"Content-Encoding": "gzip"}),
        (406, "Accept is 'text/html'", b"1", {"Accept": "text/html"}),
    ],
)
def test_wrong_requests_are_answered_with_a_sentence(
    server, model, status, sentence, body, headers
):
    answer = server.ask("POST", "/v1/predict", body, {"Content-Type": JSON, **headers})
    assert answer.status == status
    assert sentence in answer.json()["error"]
    assert answer.json()["model"]["checksum"] == model.checksum
    assert answer.headers["X-Model-Version"] == model.version


def test_too_much_is_refused(server, inputs):
    nine = {name: np.repeat(value[:1], 9, 0) for name, value in inputs.items()}
    answer = server.predict(nine)
    assert answer.status == 413
    assert "has 9 rows, more than the 8" in answer.json()["error"]
    # Refused by what it declares, and while it is read where it declares nothing.
    for body in (bytes((1 << 20) + 1), (bytes(1 << 16) for _ in range(17))):
        answer = server.predict_raw(body)
        assert answer.status == 413
        assert "longer than the limit of 1048576 bytes" in answer.json()["error"]
    assert server.predict(inputs).status == 200


def test_unknown_routes_are_answered_in_the_same_way(server, model):
    for method, path, status in (("GET", "/v2", 404), ("GET", "/v1/predict", 405)):
        answer = server.ask(method, path)
        assert answer.status == status
        assert "see /docs" in answer.json()["error"]
        assert answer.headers["X-Model-Version"] == model.version


def test_model_and_health_and_pages(server, model):
    about = server.ask("GET", "/v1/model").json()
    assert about["checksum"] == model.checksum
    assert about["inputs"] == [spec.to_dict() for spec in model.inputs]
    assert about["outputs"] == [spec.to_dict() for spec in model.outputs]
    assert (about["joined"], about["max_batch"], about["format"]) == (True, 8, "paddle")
    assert server.ask("GET", "/health").status == 200
    assert server.ask("GET", "/ready").json() == {"status": "ready"}
    document = server.ask("GET", "/openapi.json").json()
    described = document["paths"]["/v1/predict"]["post"]
    schema = described["requestBody"]["content"][JSON]["schema"]["properties"]["inputs"]
    assert schema["required"] == ["x", "word"]
    assert schema["properties"]["word"]["items"]["items"] == {"type": "integer"}
    assert set(described["responses"]) >= {"200", "400", "401", "413", "415", "500", "503"}
    page = server.ask("GET", "/docs")
    assert page.headers["Content-Type"].startswith("text/html")
    for word in ("POST /v1/predict", "float32 [any, 4]", model.checksum, "openapi.json"):
        assert word in page.body.decode()
    assert "https://" not in page.body.decode()  # it works on a network of its own


def test_concurrent_requests_are_joined_and_get_their_own_answers(server, model):
    generator = np.random.default_rng(5)
    requests = [
        {
            "x": generator.normal(size=(n, 4)).astype("float32"),
            "word": generator.integers(0, 10, size=(n, 1)),
        }
        for n in [1, 2, 3] * 40
    ]
    bad = {"x": np.zeros((1, 4), "float32"), "word": np.array([[99]])}
    before = server.metrics()
    with ThreadPoolExecutor(12) as pool:
        jobs = [pool.submit(server.predict_raw, save(each)) for each in requests]
        failing = [pool.submit(server.predict_raw, save(bad)) for _ in range(3)]
        answers = [job.result() for job in jobs]
        assert [job.result().status for job in failing] == [500] * 3
    for request, answer in zip(requests, answers, strict=True):
        assert_same(load(answer.body), model.run(request))
    after = server.metrics()

    def grown(name):
        return after[name] - before.get(name, 0)

    assert grown("fleetx_batch_rows_sum") == 243
    assert grown("fleetx_batch_requests_sum") == 123
    assert grown("fleetx_batch_requests_count") < 123  # some were computed together
    assert after['fleetx_batch_rows_bucket{le="8"}'] == after["fleetx_batch_rows_count"]


def test_metrics_add_up(server, model, inputs):
    server.predict(inputs)
    found = server.metrics()
    buckets = [v for k, v in found.items() if k.startswith("fleetx_request_seconds_bucket")]
    assert buckets == sorted(buckets)
    answered = sum(
        v for k, v in found.items() if k.startswith('fleetx_requests_total{route="/v1/p')
    )
    assert buckets[-1] == found["fleetx_request_seconds_count"] == answered
    assert found["fleetx_queue_requests"] == found["fleetx_inside_requests"] == 0
    assert found[f'fleetx_model_info{{version="{model.version}",checksum="{model.checksum}"}}'] == 1
    assert found["fleetx_ready"] == 1


def test_keys_queue_and_a_stop_in_the_middle_of_a_request(pt2_file, tmp_path, inputs):
    keys = tmp_path / "keys"
    keys.write_text("# old and new\nsecret-1\nsecret-2\n")
    options = ("--api_key_file", keys, "--version", "v7", "--max_queue", 1, "--threads", 1)
    with serving(pt2_file, *options) as server:
        for headers, word in (({}, "has no"), ({"X-API-Key": "secret"}, "has a wrong")):
            answer = server.predict(inputs, headers)
            assert answer.status == 401
            assert f"{word} API key" in answer.json()["error"]
            assert answer.headers["X-Model-Version"] == "v7"
        assert server.ask("GET", "/v1/model").status == 401
        assert server.ask("GET", "/health").status == 200
        assert server.predict(inputs, {"Authorization": "Bearer secret-2"}).status == 200
        key = {"X-API-Key": "secret-1", "Content-Type": RAW}

        # One request is allowed inside: while it is being read, others must come back later.
        body = save(inputs)
        slow = server.connect()
        slow.putrequest("POST", "/v1/predict")
        for name, value in {**key, "Content-Length": len(body)}.items():
            slow.putheader(name, str(value))
        slow.endheaders(body[:20])
        server.wait_for("fleetx_inside_requests", 1.0)
        answer = server.predict(inputs, {"X-API-Key": "secret-1"})
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"

        # What was accepted is answered although the server has been told to stop.
        server.process.terminate()
        while server.listens():
            pass
        slow.send(body[20:])
        response = slow.getresponse()
        assert response.status == 200
        assert_same(load(response.read()), load_model(pt2_file).run(inputs))
        assert server.process.wait(LIMIT) == 0
        assert "all accepted requests were answered" in server.process.stdout.read()


def test_mistakes_on_the_command_line_are_one_sentence(folder, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["serve", str(folder / "two"), "--port", str(port)]) == 1
    assert f"port {port} of 127.0.0.1 is in use" in capsys.readouterr().err
    assert cli.main(["serve", str(tmp_path), "--port", "0"]) == 1
    assert "there is no model in" in capsys.readouterr().err
    assert cli.main(["serve", str(tmp_path), "--port", "0", "--host", "no.such.host.invalid"]) == 1
    assert "--host 'no.such.host.invalid'" in capsys.readouterr().err
    empty = tmp_path / "keys"
    empty.write_text("# none\n")
    assert cli.main(["serve", str(folder), "--api_key_file", str(empty)]) == 1
    assert "holds no API key" in capsys.readouterr().err
    for option, value in (
        ("--max_batch", "0"),
        ("--port", "70000"),
        ("--max_delay_ms", "-1"),
        ("--version", "a b"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["serve", str(folder), option, value])
        assert option in capsys.readouterr().err


def test_missing_package_is_named(folder):
    code = (
        "import sys; sys.modules['uvicorn'] = None; from fleetx import cli;"
        f"sys.exit(cli.main(['serve', {str(folder / 'two')!r}]))"
    )
    done = subprocess.run(
        [command()[0], "-c", code], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "needs the package 'uvicorn': pip install 'fleetx[serve]'" in done.stderr
