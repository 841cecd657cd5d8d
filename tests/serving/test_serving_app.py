"""The application without a network: bodies that never end, and failures inside."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from fleetx.serving import ServedModel, ServeSettings, TensorSpec, create_app
from fleetx.serving.bodies import RAW, encode_raw
from fleetx.serving.engines import Engine


def model_of(call):
    spec = TensorSpec("x", (-1, 2), "float32")
    return ServedModel(Path("made.pt2"), Engine((spec,), (spec,), (), call), version="v1")


@asynccontextmanager
async def running(app):
    """Start an application and stop it, by the messages that a server sends."""
    events, answers = asyncio.Queue(), asyncio.Queue()
    serving = asyncio.ensure_future(app({"type": "lifespan"}, events.get, answers.put))
    await events.put({"type": "lifespan.startup"})
    assert await answers.get() == {"type": "lifespan.startup.complete"}
    try:
        yield
    finally:
        await events.put({"type": "lifespan.shutdown"})
        assert await answers.get() == {"type": "lifespan.shutdown.complete"}
        await serving


class Exchange:
    """A request whose body comes from `receive`, and what was answered."""

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/predict",
        "raw_path": b"/v1/predict",
        "query_string": b"",
        "headers": [(b"content-type", RAW.encode()), (b"accept", RAW.encode())],
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }

    def __init__(self, receive):
        self.receive, self.messages = receive, []

    async def send(self, message):
        self.messages.append(message)

    def run(self, app):
        async def start_ask_and_stop():
            async with running(app):
                await app(self.scope, self.receive, self.send)

        asyncio.run(start_ask_and_stop())
        return self

    @property
    def status(self):
        return self.messages[0]["status"]

    @property
    def headers(self):
        return dict(self.messages[0]["headers"])

    @property
    def error(self):
        return json.loads(b"".join(message["body"] for message in self.messages[1:]))["error"]


def test_body_that_does_not_come_is_given_up():
    async def never():
        await asyncio.Event().wait()

    app = create_app(model_of(lambda values: values), ServeSettings(body_seconds=0.01))
    done = Exchange(never).run(app)
    assert done.status == 408
    assert "did not arrive within 0.01 seconds" in done.error
    assert done.headers[b"x-model-version"] == b"v1"


def test_client_that_hangs_up_is_not_served():
    messages = [{"type": "http.request", "body": b"1", "more_body": True}]

    async def hang_up():
        return messages.pop() if messages else {"type": "http.disconnect"}

    def call(values):
        raise AssertionError("the model was asked for a request that was never whole")

    assert Exchange(hang_up).run(create_app(model_of(call))).status == 400


def test_failure_inside_is_answered_and_raised():
    """A model whose outputs no body can carry."""

    async def receive():
        body = encode_raw({"x": np.zeros((1, 2), "float32")})
        return {"type": "http.request", "body": body}

    app = create_app(model_of(lambda values: [values[0].astype("complex64")]))
    exchange = Exchange(receive)
    with pytest.raises(TypeError, match="raw bodies have no code"):
        exchange.run(app)
    assert exchange.status == 500
    assert exchange.error == "the server failed: TypeError."
    assert exchange.headers[b"x-model-checksum"].startswith(b"sha256:")


@pytest.mark.parametrize("wrong", [{"max_batch": 0}, {"max_delay": -1}, {"max_queue": 0}])
def test_settings_must_make_sense(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        ServeSettings(**wrong)
