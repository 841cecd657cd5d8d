"""The OpenAPI description of a prediction, derived from the model, and a page that shows it.

The page is self-contained, so it also works on an isolated network.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

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

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;
color:#222}code,pre{font:13px/1.5 ui-monospace,monospace;background:#f4f4f6}pre{padding:1em;
overflow:auto}table{border-collapse:collapse}td,th{text-align:left;padding:.2em 1em .2em 0;
vertical-align:top}th{border-bottom:1px solid #999}h2{margin-top:2em}"""


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


def _rows(rows: Sequence[tuple[str, ...]], headings: tuple[str, ...]) -> str:
    head = "".join(f"<th>{html.escape(each)}</th>" for each in headings)
    lines = [
        "<tr>" + "".join(f"<td><code>{html.escape(cell)}</code></td>" for cell in row) + "</tr>"
        for row in rows
    ]
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def page(document: dict[str, Any], model: ServedModel) -> str:
    """Return the page about a server: its routes, the model's inputs and outputs, an example."""
    routes = [
        (f"{method.upper()} {path}", about.get("description") or about.get("summary", ""))
        for path, methods in document["paths"].items()
        for method, about in methods.items()
    ]
    tensors = [
        (word, spec.name, str(spec))
        for word, specs in (("input", model.inputs), ("output", model.outputs))
        for spec in specs
    ]
    identity = [(name, value) for name, value in model.identity().items()]
    command = (
        f"curl -H 'Content-Type: {JSON}' -d '{_example(model)}' http://HOST:PORT{PREDICT}\n"
        "# raw tensors: safetensors.numpy.save({...}), sent and answered as\n"
        f"curl -H 'Content-Type: {RAW}' --data-binary @inputs.safetensors http://HOST:PORT{PREDICT}"
    )
    title = html.escape(document["info"]["title"])
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        f"<style>{_STYLE}</style><h1>{html.escape(model.path.name)}</h1>",
        _rows(identity, ("model", "")),
        "<h2>Inputs and outputs</h2>",
        _rows(tensors, ("", "name", "type and shape")),
        "<h2>Routes</h2>",
        _rows(routes, ("route", "what it does")),
        f"<h2>Example</h2><pre>{html.escape(command)}</pre>",
        "<h2>Errors</h2>",
        _rows(sorted(_PROBLEMS.items()), ("status", "meaning")),
        "<p>For programs: <a href=openapi.json>openapi.json</a></p></html>",
    ]
    return "".join(parts)
