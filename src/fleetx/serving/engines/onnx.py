"""ONNX files, run with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetx.checkpoint.errors import FormatError
from fleetx.serving.engines.engine import Array, Engine
from fleetx.serving.tensor_spec import TensorSpec

_TYPES = {
    "tensor(bool)": "bool",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
    "tensor(uint16)": "uint16",
    "tensor(int16)": "int16",
    "tensor(uint32)": "uint32",
    "tensor(int32)": "int32",
    "tensor(uint64)": "uint64",
    "tensor(int64)": "int64",
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
}


def load(path: Path, threads: int | None) -> Engine:
    """Load an ONNX file, with external files of large weights."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{path} is run by ONNX Runtime: pip install 'fleetx[onnx]'."
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only, which are also raised as exceptions
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no other common class
        raise FormatError(str(path), f"cannot be loaded by ONNX Runtime: {error}.") from error
    inputs = tuple(_spec(path, each) for each in session.get_inputs())
    outputs = tuple(_spec(path, each) for each in session.get_outputs())
    names = [spec.name for spec in inputs]

    def call(values: Sequence[Array]) -> list[Array]:
        found: list[Array] = session.run(None, dict(zip(names, values, strict=True)))
        return found

    # Large weights are in external files next to it, with names that begin with its own.
    beside = sorted(each for each in path.parent.glob(f"{path.name}*") if each != path)
    return Engine(inputs, outputs, (path, *beside), call)


def _spec(path: Path, value: Any) -> TensorSpec:
    if value.type not in _TYPES:
        raise FormatError(str(path), f"{value.name!r} is {value.type}, which cannot be served.")
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    return TensorSpec(value.name, shape, _TYPES[value.type])
