"""ONNX files, run with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetx.checkpoint.atomic import inside
from fleetx.checkpoint.file_errors import FormatError
from fleetx.serving.bodies import CODES
from fleetx.serving.engines.engine import Array, Engine
from fleetx.serving.tensor_spec import TensorSpec

# ONNX has NumPy's names of types, but for two.
_TYPES = {f"tensor({dtype.name})": dtype.name for dtype in CODES}
_TYPES |= {"tensor(float)": "float32", "tensor(double)": "float64"}


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

    return Engine(inputs, outputs, (path, *external_files(path)), call)


def external_files(path: Path) -> list[Path]:
    """Return the files beside a model that hold its large weights, by the names in the model."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    found: set[str] = set()
    _collect(model, found, onnx.TensorProto.EXTERNAL)
    try:
        return [inside(path.parent, name) for name in sorted(found)]
    except ValueError as error:
        raise FormatError(str(path), f"names weights outside of its folder: {error}") from error


def _collect(message: Any, found: set[str], external: int) -> None:
    """Add the locations of all tensors of a message that are in other files."""
    if message.DESCRIPTOR.name == "TensorProto":
        if message.data_location == external:
            found.update(each.value for each in message.external_data if each.key == "location")
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in [value] if hasattr(value, "ListFields") else value:
                _collect(each, found, external)


def _spec(path: Path, value: Any) -> TensorSpec:
    if value.type not in _TYPES:
        raise FormatError(str(path), f"{value.name!r} is {value.type}, which cannot be served.")
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    return TensorSpec(value.name, shape, _TYPES[value.type])
