"""Adapters: how samples are encoded in a request and vectors decoded from a response.

The built-in ones are `raw` (safetensors bodies) and `json` of `fleetx serve`, and `kserve` (version
2 of the open inference protocol). Any other endpoint needs two functions, in a file or a module:

    def encode(inputs):          # {input name: array}, one row per sample
        return body, headers     # bytes, {"Content-Type": ...}

    def decode(body):            # the bytes of the response
        return outputs           # {output name: array}, one row per sample; or one array

An endpoint that preprocesses photographs itself receives them from `encode(inputs, files)`: the
second argument has the file of every sample if samples are files, else its id.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fleetx.evaluation.evaluation_error import EvaluationError
from fleetx.serving.bodies import CODES, JSON, RAW, decode_raw, encode_raw
from fleetx.serving.request_error import RequestError

Arrays = dict[str, np.ndarray]

# Data types of the open inference protocol: NumPy's names in capitals, such as INT8, FP32 and BOOL.
_KSERVE_NAMES = {dtype.name: dtype.name.upper().replace("FLOAT", "FP") for dtype in CODES}
_KSERVE_TYPES = {name: dtype for dtype, name in _KSERVE_NAMES.items()}


class AnswerError(ValueError):
    """An error for a malformed response; the message says what is wrong."""


@dataclass(frozen=True)
class Answer:
    """The response of an endpoint."""

    outputs: Arrays
    version: str | None = None
    checksum: str | None = None


class Adapter(Protocol):
    """Translation between arrays and the bodies of one kind of endpoint."""

    @property
    def path(self) -> str:
        """The path of requests if the endpoint's address has none."""

    def encode(self, inputs: Arrays, sources: Sequence[str]) -> tuple[bytes, Mapping[str, str]]:
        """Return the body and the headers of a request."""

    def decode(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Decode a response; raise AnswerError if it is malformed."""


class RawAdapter:
    """Safetensors bodies, as in `fleetx serve`."""

    path = "/v1/predict"

    def encode(self, inputs: Arrays, sources: Sequence[str]) -> tuple[bytes, Mapping[str, str]]:
        """Return the body and the headers of a request."""
        return encode_raw(inputs), {"Content-Type": RAW, "Accept": RAW}

    def decode(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Decode a response."""
        try:
            outputs = decode_raw(body)
        except RequestError as error:
            raise AnswerError(error.problem) from error
        return Answer(outputs, headers.get("x-model-version"), headers.get("x-model-checksum"))


class JsonAdapter:
    """Requests `{"inputs": {name: lists}}` and responses `{"outputs": {name: lists}}`.

    Outputs may also be named predictions, and be a single list if there is one output.
    """

    path = "/v1/predict"

    def encode(self, inputs: Arrays, sources: Sequence[str]) -> tuple[bytes, Mapping[str, str]]:
        """Return the body and the headers of a request."""
        body = json.dumps({"inputs": {name: array.tolist() for name, array in inputs.items()}})
        return body.encode(), {"Content-Type": JSON, "Accept": JSON}

    def decode(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Decode a response."""
        answer = _json_object(body)
        outputs = answer.get("outputs", answer.get("predictions"))
        if isinstance(outputs, list):
            outputs = {"output": outputs}
        if not isinstance(outputs, dict):
            raise AnswerError(
                f"it has no 'outputs' with lists by name; its fields are {sorted(answer)}."
            )
        model = answer.get("model")
        model = model if isinstance(model, dict) else {}
        return Answer(
            {name: _array(name, lists) for name, lists in outputs.items()},
            model.get("version", headers.get("x-model-version")),
            model.get("checksum", headers.get("x-model-checksum")),
        )


class KServeAdapter:
    """Requests and responses of the open inference protocol, version 2, as JSON."""

    path = "/v2/models/model/infer"

    def encode(self, inputs: Arrays, sources: Sequence[str]) -> tuple[bytes, Mapping[str, str]]:
        """Return the body and the headers of a request."""
        tensors = []
        for name, array in inputs.items():
            datatype = _KSERVE_NAMES.get(array.dtype.name)
            if datatype is None:
                raise EvaluationError(
                    f"input {name!r} holds {array.dtype}, which the adapter 'kserve' cannot send."
                )
            tensors.append(
                {
                    "name": name,
                    "shape": list(array.shape),
                    "datatype": datatype,
                    "data": array.reshape(-1).tolist(),
                }
            )
        return json.dumps({"inputs": tensors}).encode(), {"Content-Type": JSON, "Accept": JSON}

    def decode(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Decode a response."""
        answer = _json_object(body)
        outputs = {}
        try:
            for tensor in answer["outputs"]:
                data = np.array(tensor["data"], dtype=_KSERVE_TYPES[tensor["datatype"]])
                outputs[str(tensor["name"])] = data.reshape(tensor["shape"])
        except (KeyError, TypeError, ValueError) as error:
            raise AnswerError(
                f"its outputs do not have name, shape, datatype and data of the open inference "
                f"protocol ({type(error).__name__}: {error})."
            ) from error
        return Answer(outputs, answer.get("model_version"), headers.get("x-model-checksum"))


@dataclass(frozen=True)
class OwnAdapter:
    """An adapter of two functions written by the user."""

    source: str
    encoder: Callable[..., Any]
    decoder: Callable[[bytes], Any]
    path: str = "/"

    @property
    def takes_sources(self) -> bool:
        """Whether encode() also takes the samples' files."""
        return len(inspect.signature(self.encoder).parameters) > 1

    def encode(self, inputs: Arrays, sources: Sequence[str]) -> tuple[bytes, Mapping[str, str]]:
        """Return the body and the headers of a request."""
        result = self.encoder(inputs, sources) if self.takes_sources else self.encoder(inputs)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], bytes)):
            raise EvaluationError(
                f"encode() of {self.source} must return (bytes, headers), not {result!r:.80}."
            )
        body, headers = result
        return body, dict(headers)

    def decode(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Decode a response."""
        try:
            outputs = self.decoder(body)
        except Exception as error:
            raise AnswerError(
                f"decode() of {self.source} failed on it: {type(error).__name__}: {error}."
            ) from error
        if not isinstance(outputs, dict):
            outputs = {"output": outputs}
        return Answer(
            {str(name): _array(name, value) for name, value in outputs.items()},
            headers.get("x-model-version"),
            headers.get("x-model-checksum"),
        )


BUILT_IN: dict[str, Callable[[], Adapter]] = {
    "raw": RawAdapter,
    "json": JsonAdapter,
    "kserve": KServeAdapter,
}


def find_adapter(name: str) -> Adapter:
    """Return the adapter of this name: a built-in one, `file.py`, `module` or `module:object`."""
    if name in BUILT_IN:
        return BUILT_IN[name]()
    try:
        if name.endswith(".py"):
            holder: Any = _from_file(Path(name))
        else:
            module, _, attribute = name.partition(":")
            holder = importlib.import_module(module)
            holder = getattr(holder, attribute) if attribute else holder
        encoder, decoder = holder.encode, holder.decode
    except (ImportError, AttributeError) as error:
        raise EvaluationError(
            f"--adapter {name!r} cannot be used ({error}); it is one of {', '.join(BUILT_IN)}, or "
            "a Python file, a module or module:object with encode(inputs) and decode(body)."
        ) from error
    return OwnAdapter(name, encoder, decoder)


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise ImportError(f"there is no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(f"fleetx_adapter_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"it is not JSON: {error}.") from error
    if not isinstance(answer, dict):
        raise AnswerError(f"it is a JSON {type(answer).__name__}, not an object.")
    return answer


def _array(name: object, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise AnswerError(f"output {name!r} has rows of different lengths.") from error
    if array.dtype.kind not in "fiub":
        raise AnswerError(f"output {name!r} does not hold numbers.")
    return array
