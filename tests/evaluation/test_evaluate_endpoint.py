"""Endpoints that do not answer, or answer unreadably: one sentence and exit status 2."""

import pickle
import socket

import numpy as np
import pytest

from fleetx import cli
from fleetx.evaluation.endpoint import Endpoint, EndpointSettings
from fleetx.evaluation.evaluation_error import EndpointError, EvaluationError


def refused(capsys, *command):
    assert cli.main(["evaluate", *map(str, command)]) == 2
    return capsys.readouterr().err.replace("\n", " ")


def test_nobody_listens(models, pictures, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    said = refused(capsys, models[0], "--data", pictures, "--against", url, "--retries", 1)
    assert f"{url}/v1/predict did not answer samples 'picture-000.png' to " in said
    assert "in 2 attempts: the connection failed" in said


def test_errors_can_be_sent_to_another_process():
    for error in (EvaluationError("why"), EndpointError("why")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == "why"


def test_no_answer_in_time(faulty, models, pictures, capsys):
    said = refused(
        capsys,
        *(models[0], "--data", pictures, "--against", f"{faulty}/raw/never"),
        *("--timeout", 0.2, "--retries", 0),
    )
    assert "in 1 attempt: no complete response within 0.2 s" in said


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refused", "rejected samples 'picture-000.png' to 'picture-031.png' with status 422"),
        ("moved", "it has moved to 'http://elsewhere/'; use that address"),
        ("garbage", "to samples 'picture-000.png' to 'picture-031.png' cannot be read"),
    ],
)
def test_wrong_answers(fault, words, faulty, models, pictures, capsys):
    url = f"{faulty}/raw/{fault}"
    said = refused(capsys, models[0], "--data", pictures, "--against", url)
    assert words in said
    assert url in said


def test_busy_endpoint_is_asked_again(faulty, models, pictures, capsys):
    url = f"{faulty}/raw/busy_first"
    command = ["evaluate", str(models[0]), "--data", str(pictures), "--against", url]
    assert cli.main(command) == 0
    capsys.readouterr()


def test_failed_evaluation_leaves_no_files(faulty, models, pictures, tmp_path, capsys):
    out, page = tmp_path / "v.safetensors", tmp_path / "page.html"
    refused(
        capsys,
        *(models[0], "--data", pictures, "--against", f"{faulty}/raw/refused"),
        *("--out", out, "--report", page),
    )
    assert list(tmp_path.iterdir()) == []


def test_answers_of_any_length_are_not_taken(faulty, pictures):
    settings = EndpointSettings(f"{faulty}/raw/none", largest_answer=100)
    with Endpoint(settings) as endpoint, pytest.raises(EndpointError, match="more than 100 bytes"):
        endpoint.predict({"picture": np.zeros((1, 3, 16, 16), "float32")}, ["a"])


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://"])
def test_what_is_no_address(url):
    with pytest.raises(EvaluationError, match="is not an address"):
        EndpointSettings(url)


@pytest.mark.parametrize("adapter", ["nothing.py", "fleetx.none", "json.decoder", "json:none"])
def test_what_is_no_adapter(adapter):
    with pytest.raises(EvaluationError, match="cannot be used .*encode.inputs. and decode.body."):
        Endpoint(EndpointSettings("http://127.0.0.1:1", adapter=adapter))
