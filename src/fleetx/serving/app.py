"""The routes of a server: predictions, the model, health, metrics and documentation.

    POST /v1/predict   outputs for inputs, JSON or raw tensors
    GET  /v1/model     inputs, outputs, version and checksum of the model
    GET  /health       the process is alive       GET /ready    requests are accepted
    GET  /metrics      for Prometheus             GET /docs     this, as a page

A prediction is checked, read, batched with others (`batching.py`) and answered without pydantic:
bodies are read directly into arrays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

import fleetx
from fleetx.serving.batching import Batcher
from fleetx.serving.bodies import JSON, decode_raw, encode_raw
from fleetx.serving.front import PREDICT, Front, version_headers
from fleetx.serving.independence import why_not_joined
from fleetx.serving.json_process import JsonProcess
from fleetx.serving.model import ServedModel
from fleetx.serving.openapi import describe_prediction, page
from fleetx.serving.request_error import RequestError
from fleetx.serving.request_reading import (
    BodyBudget,
    ClientGone,
    body_kinds,
    check_key,
    read_body,
)
from fleetx.serving.serve_settings import ServeSettings
from fleetx.serving.server_metrics import CONTENT_TYPE, Metrics
from fleetx.serving.tensor_spec import check_arrays
from fleetx.serving.versions import Versions

_BUSY_SECONDS = 1  # Retry-After if the queue is full


@dataclass(eq=False)
class _Version:
    """A model, its batches and the number of its requests in progress."""

    model: ServedModel
    batcher: Batcher
    why_not_joined: str | None = None
    inside: int = 0


class Service:
    """A served model: admission of requests, and their responses."""

    def __init__(self, model: ServedModel, settings: ServeSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._current = self._make(model)
        self.ready = False
        self._inside = 0
        self._bodies = BodyBudget(settings.max_bodies)
        self._json = JsonProcess()
        show = self.metrics.show
        show("inside_requests", lambda: self._inside, "Predictions in progress.")
        show("queue_requests", lambda: self.batcher.waiting, "Predictions waiting for the model.")
        show("ready", lambda: int(self.ready), "1 if requests are accepted.")
        show("model_info", lambda: 1, "The served model.", **model.identity())

    def _make(self, model: ServedModel) -> _Version:
        return _Version(model, Batcher(model, self.settings, self.metrics))

    @property
    def model(self) -> ServedModel:
        """The model that serves new requests."""
        return self._current.model

    @property
    def batcher(self) -> Batcher:
        """The batches of new requests."""
        return self._current.batcher

    def take(self, model: ServedModel, why_not_joined: str | None) -> None:
        """Serve new requests with another, tested model; finish the others with the old one."""
        old, new = self._current, self._make(model)
        new.why_not_joined = why_not_joined
        new.batcher.joins = why_not_joined is None
        self._current = new
        self.metrics.show("model_info", lambda: 1, "The served model.", **model.identity())
        self._leave(old)

    def _leave(self, version: _Version) -> None:
        """Stop the thread of an old version after its last request."""
        if version is not self._current and not version.inside:
            version.batcher.close()

    def close(self) -> None:
        """Stop the thread and the process that compute."""
        self.batcher.close()
        self._json.close()

    async def warm_up(self) -> None:
        """Run the model for the first time, and determine whether requests can be batched."""
        version = self._current
        try:
            version.why_not_joined = await version.batcher.call(why_not_joined, version.model)
        except Exception as error:  # of a test; real requests get their own responses
            version.why_not_joined = f"the test with two rows failed: {error}"
        version.batcher.joins = version.why_not_joined is None
        self.ready = True

    async def predict(self, request: Request) -> Response:
        """Answer a prediction."""
        check_key(request, self.settings)
        if self._inside >= self.settings.max_queue:
            raise RequestError(
                503,
                f"{self._inside} requests are already in progress; try again later.",
                retry_after=_BUSY_SECONDS,
            )
        version = self._current
        self._inside += 1
        version.inside += 1
        try:
            kind, answer_kind = body_kinds(request)
            with self._bodies.share() as count:
                body = await read_body(request, self.settings, count)
                inputs = version.model.inputs
                if kind == JSON:
                    arrays = await self._json.decode(body, inputs)
                else:
                    arrays = decode_raw(body)
                del body
                check_arrays(inputs, arrays)
                outputs = await version.batcher.submit(arrays)
            if answer_kind == JSON:
                content = await self._json.encode(outputs, version.model.identity())
            else:
                content = encode_raw(outputs, version.model.identity())
        finally:
            self._inside -= 1
            version.inside -= 1
            self._leave(version)
        response = Response(content, media_type=answer_kind)
        response.raw_headers.extend(version_headers(version.model))
        return response

    def description(self) -> dict[str, Any]:
        """Return the response of `GET /v1/model`."""
        model = self.model
        return {
            **model.identity(),
            "name": model.path.stem if model.path.suffix else model.path.parent.name,
            "format": model.kind,
            "inputs": [spec.to_dict() for spec in model.inputs],
            "outputs": [spec.to_dict() for spec in model.outputs],
            "max_batch": self.settings.max_batch,
            "max_body_bytes": self.settings.max_body,
            "joined": self.batcher.joins,
            "why_not_joined": self._current.why_not_joined,
        }


def create_app(
    model: ServedModel, settings: ServeSettings | None = None, versions: Versions | None = None
) -> Front:
    """Return the ASGI application of a model, and of its newer versions if a folder is watched."""
    service = Service(model, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # In the background: health checks succeed while the model warms up.
        tasks = [asyncio.ensure_future(service.warm_up())]
        if versions is not None:
            follow = versions.follow(lambda: service.model, service.take)
            tasks.append(asyncio.ensure_future(follow))
        yield
        service.ready = False
        for following in tasks[1:]:
            following.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        service.close()

    app = FastAPI(
        title="FleetX model server",
        version=fleetx.__version__,
        description=f"Serves the model {model.path.name}, version {model.version}.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    _add_routes(app, service)
    _add_error_answers(app, service)
    return Front(app, lambda: service.model, service.metrics)


def _add_routes(app: FastAPI, service: Service) -> None:
    model = service.model
    described = describe_prediction(model, keyed=bool(service.settings.api_keys))

    @app.post(PREDICT, response_class=Response, openapi_extra=described)
    async def predict(request: Request) -> Response:
        """Outputs for inputs; the response has the first supported media type of `Accept`."""
        return await service.predict(request)

    @app.get("/v1/model")
    async def about_model(request: Request) -> dict[str, Any]:
        """Inputs, outputs, version and checksum of the model, and the limits of requests."""
        check_key(request, service.settings)
        return service.description()

    @app.get("/health")
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Whether requests are accepted: the model is warm and the server is not stopping."""
        words = {"status": "ready" if service.ready else "not ready"}
        return JSONResponse(words, 200 if service.ready else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Metrics of the server in Prometheus' text format."""
        return PlainTextResponse(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        """Return this description as a page."""
        return HTMLResponse(page(app.openapi(), service.model))


def _add_error_answers(app: FastAPI, service: Service) -> None:
    def answer(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
        words = {"error": sentence, "model": service.model.identity()}
        return JSONResponse(words, status, headers)

    @app.exception_handler(RequestError)
    async def on_request_error(_: Request, error: RequestError) -> Response:
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        if error.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return answer(error.status, error.problem, headers)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        sentence = f"{request.method} {request.url.path}: {error.detail}; see /docs."
        return answer(error.status_code, sentence, dict(error.headers or {}))

    @app.exception_handler(ClientGone)
    async def on_client_gone(_: Request, error: Exception) -> Response:
        return answer(400, "the request ended before its body was complete.")

    @app.exception_handler(Exception)
    async def on_failure(_: Request, error: Exception) -> Response:
        return answer(500, f"the server failed: {type(error).__name__}.")
