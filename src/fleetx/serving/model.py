"""A saved model, ready to be run: the one object that serving and evaluation work with.

    model = load_model("output/model")
    outputs = model.run({"x": array})

Its version is a word of the user's or the beginning of its checksum; the checksum covers the names
and contents of all its files, so two models that compute different things differ in it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fleetx.serving.engines import Engine, load_engine
from fleetx.serving.model_files import checksum_of, find_model, kind_of
from fleetx.serving.tensor_spec import Arrays, TensorSpec, check_arrays

# The version travels in a header of HTTP.
_VERSION = re.compile(r"[!-~]{1,128}")


def check_version(text: str) -> str:
    """Return a name of a version after making sure that it can travel in a header."""
    if not _VERSION.fullmatch(text):
        raise ValueError(f"the version {text!r} must be 1 to 128 visible ASCII characters.")
    return text


class ServedModel:
    """A loaded model with names for its inputs and outputs."""

    def __init__(self, path: Path, engine: Engine, *, version: str | None = None) -> None:
        self.path = path
        self.kind = kind_of(path) or ""
        self.inputs: tuple[TensorSpec, ...] = engine.inputs
        self.outputs: tuple[TensorSpec, ...] = engine.outputs
        self.checksum = "sha256:" + checksum_of(engine.files)
        self.version = version or self.checksum.removeprefix("sha256:")[:12]
        self._call = engine.call

    def run(self, arrays: Arrays) -> Arrays:
        """Return the outputs by name; raises `RequestError` where an input is not as it must be."""
        check_arrays(self.inputs, arrays)
        return self.run_checked(arrays)

    def run_checked(self, arrays: Arrays) -> Arrays:
        """Run on arrays that `check_arrays` has accepted before."""
        values = self._call([arrays[spec.name] for spec in self.inputs])
        return {spec.name: value for spec, value in zip(self.outputs, values, strict=True)}

    def identity(self) -> dict[str, str]:
        """Return what every answer says about the model that gave it."""
        return {"version": self.version, "checksum": self.checksum}


def load_model(
    path: str | os.PathLike[str], *, version: str | None = None, threads: int | None = None
) -> ServedModel:
    """Load a saved inference model: Paddle's format, `.pt2` or `.onnx`.

    Args:
        path: the model's file, the path it was saved under, or a folder that holds one model.
        version: how to call it; the first twelve digits of its checksum if None.
        threads: threads that compute one batch; the library's choice if None.
    """
    if version is not None:
        check_version(version)
    found = find_model(Path(path))
    return ServedModel(found, load_engine(found, threads=threads), version=version)
