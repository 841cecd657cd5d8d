"""Programs written by torch.export or `fleetx.static.export`: `.pt2` files."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from fleetx import torch_private
from fleetx.checkpoint.file_errors import FormatError
from fleetx.serving.engines.engine import Array, Engine
from fleetx.serving.engines.pt2_safety import refuse_code
from fleetx.serving.engines.tables import bind
from fleetx.serving.table_options import TableOptions
from fleetx.serving.tensor_spec import TensorSpec
from fleetx.static.graph.dtypes import dtype_name

_NAMES = "fleetx.json"
TABLES = "tables"
"""The folder beside a model that holds its tables."""


class _Identity(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def prepare() -> None:
    """Import what torch loads lazily, by loading and running a small program."""
    file, x = io.BytesIO(), torch.zeros(1)
    torch.export.save(torch.export.export(_Identity(), (x,)), file)
    file.seek(0)
    torch.export.load(file).module()(x)


def load(path: Path, threads: int | None, tables: TableOptions) -> Engine:
    """Load an exported program; use the names that FleetX stored with it, or else torch's."""
    if threads is not None:
        torch.set_num_threads(threads)
    refuse_code(path)
    extra = {_NAMES: ""}
    try:
        program = torch.export.load(path, extra_files=extra)
    except Exception as error:  # torch raises various errors for invalid files
        raise FormatError(str(path), f"is not a file of torch.export: {error}.") from error
    nodes = {node.name: node for node in program.graph.nodes}
    taken = [nodes[name] for name in program.graph_signature.user_inputs if name in nodes]
    given = [nodes.get(str(name)) for name in program.graph_signature.user_outputs]
    tensors = [node for node in taken if isinstance(node.meta.get("val"), torch.Tensor)]
    if len(tensors) != len(program.graph_signature.user_inputs):
        raise FormatError(str(path), "takes inputs that are not tensors, which cannot be served.")
    results = [node for node in given if node is not None]
    if len(results) != len(given):
        raise FormatError(str(path), "returns outputs other than tensors, which cannot be served.")
    known = json.loads(extra[_NAMES] or "{}")
    feeds = known.get("feeds") or [node.name for node in tensors]
    fetches = known.get("fetches") or _output_names(program, [node.name for node in results])
    inputs = tuple(_spec(n, t) for n, t in zip(feeds, tensors, strict=True))
    outputs = tuple(_spec(n, t) for n, t in zip(fetches, results, strict=True))
    files = bind(path, program, TABLES, tables)
    return Engine(inputs, outputs, (path, *files), _Runner(program, tensors))


def _output_names(program: Any, plain: list[str]) -> list[str]:
    """Return the names of outputs: the keys of a dict that the model returns, or else torch's."""
    structure = torch_private.tree_unflatten(list(range(len(plain))), program.call_spec.out_spec)
    names = dict(_keys(structure, "")) if isinstance(structure, dict) else {}
    found = [names.get(number) or name for number, name in enumerate(plain)]
    return found if len(set(found)) == len(found) else plain


def _keys(structure: Any, path: str) -> Iterator[tuple[int, str]]:
    """Yield the number of every output in nested dicts and sequences, and its path in them."""
    if isinstance(structure, int):
        yield structure, path
    elif isinstance(structure, dict | list | tuple):
        items = structure.items() if isinstance(structure, dict) else enumerate(structure)
        for key, value in items:
            yield from _keys(value, f"{path}.{key}" if path else str(key))


def _spec(name: str, node: torch.fx.Node) -> TensorSpec:
    value = node.meta["val"]
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    wide = value.dtype == torch.bfloat16
    return TensorSpec(name, shape, "float32" if wide else dtype_name(value.dtype))


class _Runner:
    """Runner of the module on arrays."""

    def __init__(self, program: Any, inputs: Sequence[torch.fx.Node]) -> None:
        self._program = program  # unregisters its tables when it is freed
        self._module = program.module()
        self._structure = program.call_spec.in_spec
        self._types = [node.meta["val"].dtype for node in inputs]

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        tensors = [
            torch.from_numpy(value).to(dtype)
            for value, dtype in zip(values, self._types, strict=True)
        ]
        args, kwargs = torch_private.tree_unflatten(tensors, self._structure)
        with torch.inference_mode():
            found = torch_private.tree_leaves(self._module(*args, **kwargs))
        return [(x.float() if x.dtype == torch.bfloat16 else x).numpy() for x in found]
