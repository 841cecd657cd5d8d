"""A saved model that is ready to run, used by both serving and evaluation.

    model = load_model("output/model")
    outputs = model.run({"x": array})

Its version is given by the user or the first digits of its checksum; the checksum covers the names
and contents of all its files (rows of tables by the checksums in their manifests), so two models
that compute different things have different ones.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fleetx.serving.engines import Engine, load_engine
from fleetx.serving.model_files import checksum_of, find_model, kind_of
from fleetx.serving.table_options import TableOptions
from fleetx.serving.tensor_spec import Arrays, TensorSpec, check_arrays

# The version is sent as an HTTP header.
_VERSION = re.compile(r"[!-~]{1,128}")


def check_version(text: str) -> str:
    """Return a version name after checking that it is valid in a header."""
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
        """Return the outputs by name; raise `RequestError` if an input is invalid."""
        check_arrays(self.inputs, arrays)
        return self.run_checked(arrays)

    def run_checked(self, arrays: Arrays) -> Arrays:
        """Run the model on arrays that `check_arrays` has accepted."""
        values = self._call([arrays[spec.name] for spec in self.inputs])
        return {spec.name: value for spec, value in zip(self.outputs, values, strict=True)}

    def identity(self) -> dict[str, str]:
        """Return the identity of the model, which is part of every response."""
        return {"version": self.version, "checksum": self.checksum}


def load_model(
    path: str | os.PathLike[str],
    *,
    version: str | None = None,
    threads: int | None = None,
    tables: TableOptions | None = None,
) -> ServedModel:
    """Load a saved inference model: Paddle's format, `.pt2` or `.onnx`.

    Args:
        path: the model's file, the path it was saved under, or a folder that holds one model.
        version: its version; the first twelve digits of its checksum if None.
        threads: the number of threads per batch; the library's choice if None.
        tables: where the rows of its tables are, if not beside it, and how many are cached.
    """
    if version is not None:
        check_version(version)
    found = find_model(Path(path))
    engine = load_engine(found, threads=threads, tables=tables or TableOptions())
    return ServedModel(found, engine, version=version)
