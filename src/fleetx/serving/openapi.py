"""The OpenAPI description of a prediction, derived from the model, and a page that shows it.

The page is self-contained, so it also works on an isolated network.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fleetx.monitor.page import document, facts_table, row, section, table
from fleetx.serving.bodies import JSON, RAW
from fleetx.serving.front import PREDICT
from fleetx.serving.model import ServedModel
from fleetx.serving.tensor_spec import TensorSpec

_PROBLEMS = {
    "400": "A name, shape, type or body is wrong; the message says which.",
    "401": "The API key is missing or wrong.",
    "406": "No media type of Accept is supported.",
    "408": "The body took too long to arrive.",
    "413": "The body is too long, or has more rows than are computed at a time.",
    "415": "The media type of the body is unknown.",
    "500": "The model failed on this request.",
    "503": "Too many requests at once; try again after Retry-After seconds.",
}


def _lists(spec: TensorSpec) -> dict[str, Any]:
    """Return the JSON schema of a tensor as nested lists."""
    kind = {"b": "boolean", "i": "integer", "u": "integer"}.get(spec.dtype[0], "number")
    schema: dict[str, Any] = {"type": kind}
    for size in reversed(spec.shape):
        schema = {"type": "array", "items": schema}
        if size >= 0:
            schema.update(minItems=size, maxItems=size)
    return {**schema, "description": str(spec)}


def _object(specs: tuple[TensorSpec, ...]) -> dict[str, Any]:
    names = [spec.name for spec in specs]
    fields = {spec.name: _lists(spec) for spec in specs}
    return {"type": "object", "properties": fields, "required": names}


def _wrapped(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: fields}, "required": [name]}


def describe_prediction(model: ServedModel, *, keyed: bool) -> dict[str, Any]:
    """Return the OpenAPI description of the bodies of a prediction."""
    raw = {"schema": {"type": "string", "format": "binary", "description": "safetensors"}}
    text = {"type": "object", "properties": {"error": {"type": "string"}}}
    answers: dict[str, Any] = {
        code: {"description": words, "content": {JSON: {"schema": text}}}
        for code, words in _PROBLEMS.items()
    }
    outputs = _wrapped("outputs", _object(model.outputs))
    outputs["properties"]["model"] = {
        "type": "object",
        "properties": {"version": {"type": "string"}, "checksum": {"type": "string"}},
    }
    answers["200"] = {
        "description": "The outputs.",
        "headers": {
            name: {"schema": {"type": "string"}} for name in ("X-Model-Version", "X-Model-Checksum")
        },
        "content": {JSON: {"schema": outputs}, RAW: raw},
    }
    inputs = {"schema": _wrapped("inputs", _object(model.inputs))}
    body = {"required": True, "content": {JSON: inputs, RAW: raw}}
    described: dict[str, Any] = {"requestBody": body, "responses": answers}
    if keyed:
        name = {"name": "X-API-Key", "in": "header", "required": True, "schema": {"type": "string"}}
        described["parameters"] = [name]
    return described


def _example(model: ServedModel) -> str:
    """Return a body with zeros, unless it is too long for the page."""
    inputs: dict[str, Any] = {}
    for spec in model.inputs:
        value: Any = 0 if spec.dtype[0] in "iu" else 0.0
        numbers = 1
        for size in reversed(spec.shape):
            value = [value] * max(size, 1)
            numbers *= max(size, 1)
        inputs[spec.name] = value if numbers <= 64 else "..."
    return json.dumps({"inputs": inputs})


def page(description: dict[str, Any], model: ServedModel) -> str:
    """Return the page about a server: its routes, the model's inputs and outputs, an example."""
    routes = [
        (f"{method.upper()} {path}", about.get("description") or about.get("summary", ""))
        for path, methods in description["paths"].items()
        for method, about in methods.items()
    ]
    tensors = [
        (word, spec.name, str(spec))
        for word, specs in (("input", model.inputs), ("output", model.outputs))
        for spec in specs
    ]
    command = (
        f"curl -H 'Content-Type: {JSON}' -d '{_example(model)}' http://HOST:PORT{PREDICT}\n"
        "# raw tensors: safetensors.numpy.save({...}), sent and answered as\n"
        f"curl -H 'Content-Type: {RAW}' --data-binary @inputs.safetensors http://HOST:PORT{PREDICT}"
    )
    problems = sorted(_PROBLEMS.items())
    parts = [
        f"<h1>{escape(model.path.name)}</h1>",
        section("Model", facts_table(model.identity())),
        section("Inputs and outputs", table(("", "name", "type and shape"), map(row, tensors))),
        section("Routes", table(("route", "what it does"), map(row, routes))),
        section("Example", f"<pre>{escape(command)}</pre>"),
        section("Errors", table(("status", "meaning"), map(row, problems))),
        "<p>For programs: <a href=openapi.json>openapi.json</a></p>",
    ]
    return document(description["info"]["title"], "\n".join(parts))
