"""Weights by name: of a program, of the same network as a module, and in files.

A weight has three names: that of its variable (`conv2d_0.w_0`), its path in Paddle's `state_dict`
(`bn1._mean`), and its key in a module (`bn1.running_mean`). Paddle's linear layers store the
transpose of torch's. Files are read completely and compared with the network before any change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fleetx.checkpoint.file_errors import FormatError, MissingFileError
from fleetx.checkpoint.manifest import MANIFEST, load_state
from fleetx.checkpoint.paddle_tensor import read_tensors
from fleetx.checkpoint.pickle_reader import load_arrays
from fleetx.static.graph.variable import Variable
from fleetx.static.nn.common import Linear
from fleetx.static.nn.layer import Layer

# The names of batch normalisation's statistics in Paddle and in torch.
STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}

# A counter of torch's batch normalisation without a counterpart in Paddle.
COUNTER = "num_batches_tracked"


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A weight of a static model."""

    variable: Variable
    """The program's variable."""
    place: str
    """The name in Paddle's `state_dict`."""
    transposed: bool = False
    """Whether the module stores the transpose."""


def weights_of(layer: Layer) -> dict[str, Weight]:
    """Return the weights of a tree of static layers, keyed as in the same tree of modules."""
    linear = {
        f"{place}.weight" if place else "weight"
        for place, sublayer in layer.named_sublayers(include_self=True)
        if isinstance(sublayer, Linear)
    }
    found = {}
    for place, variable in layer.state_dict().items():
        head, _, last = place.rpartition(".")
        key = f"{head}.{STATISTICS.get(last, last)}" if head else STATISTICS.get(last, last)
        found[key] = Weight(variable=variable, place=place, transposed=place in linear)
    return found


@dataclass(frozen=True, kw_only=True)
class Values:
    """The content of a file or folder."""

    source: str
    """The path, for messages."""
    tensors: dict[str, torch.Tensor]
    """Values by the names in the file."""
    is_torch: bool
    """Whether linear layers are stored in torch's layout."""


def read_values(
    path: str | os.PathLike[str], variables: Sequence[str], other_names: Iterable[str] = ()
) -> Values:
    """Read weights: safetensors, a `.pdparams` file, a folder with such files, or variables.

    ``variables`` are the names of the program's variables: a combined file has them sorted by
    name; a folder may have a file for each, or for each of ``other_names``.
    """
    found = Path(path)
    if not found.exists() and Path(f"{found}.pdparams").is_file():
        found = Path(f"{found}.pdparams")
    if not found.exists():
        raise MissingFileError(f"There are no weights at {found}: no such file or folder.")
    if found.is_file():
        return _read_file(found, variables)
    if (found / MANIFEST).is_file():
        return Values(source=str(found), tensors=load_state(found)[0], is_torch=True)
    files = sorted(found.glob("*.safetensors"))
    if files:
        return _read_safetensors(str(found), files)
    pickles = sorted(found.glob("*.pdparams"))
    if len(pickles) > 1:
        names = ", ".join(file.name for file in pickles)
        raise ValueError(f"{found} holds several sets of weights ({names}): pass the path of one.")
    if pickles:
        return _read_file(pickles[0], variables)
    named = (variables, tuple(other_names))
    present = max(([n for n in names if (found / n).is_file()] for names in named), key=len)
    if not present:
        raise MissingFileError(
            f"{found} holds no weights of this model: neither *.safetensors nor *.pdparams nor "
            f"files named after variables, such as {variables[0]}."
        )
    read = {name: read_tensors(found / name, [name])[name].array for name in present}
    return Values(source=str(found), tensors=_tensors(read), is_torch=False)


def _read_file(path: Path, variables: Sequence[str]) -> Values:
    if path.suffix == ".safetensors":
        return _read_safetensors(str(path), [path])
    if path.suffix == ".pdparams":
        arrays = {n: v for n, v in load_arrays(path).items() if isinstance(v, np.ndarray)}
        return Values(source=str(path), tensors=_tensors(arrays), is_torch=False)
    if path.suffix in (".pt", ".pth", ".bin"):
        raise ValueError(
            f"{path} is a file of torch.save, which may run code when it is loaded: save its "
            "tensors with safetensors.torch.save_file and load that file."
        )
    records = read_tensors(path, sorted(variables))
    arrays = {name: record.array for name, record in records.items()}
    return Values(source=str(path), tensors=_tensors(arrays), is_torch=False)


def _read_safetensors(source: str, files: Iterable[Path]) -> Values:
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, torch.Tensor] = {}
    is_torch = True
    for path in files:
        try:
            with safe_open(path, framework="pt") as opened:
                # Paddle's own tools mark their files, whose linear layers are transposed.
                is_torch = is_torch and (opened.metadata() or {}).get("format") != "pd"
                for name in opened.keys():  # noqa: SIM118 - not a dictionary
                    if name in tensors:
                        raise FormatError(str(path), f"has {name!r}, as another file there does.")
                    tensors[name] = opened.get_tensor(name)
        except SafetensorError as error:
            raise FormatError(
                str(path), f"is truncated or not a safetensors file ({error})."
            ) from error
    return Values(source=source, tensors=tensors, is_torch=is_torch)


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    # A uint16 array of Paddle contains bfloat16.
    return {
        name: torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if array.dtype == np.uint16
        else torch.from_numpy(np.ascontiguousarray(array))
        for name, array in arrays.items()
    }


def match(
    values: Values,
    weights: Mapping[str, Weight],
    *,
    model: str,
    other_names: Mapping[str, str] | None = None,
    leave_out: Sequence[str] = (),
) -> dict[str, torch.Tensor]:
    """Return a value for every variable, in the program's layout, or raise with all problems.

    ``other_names`` maps names of other files to a module's keys; ``leave_out`` are prefixes of
    keys whose weights keep their values.
    """
    wanted = {key: w for key, w in weights.items() if not key.startswith(tuple(leave_out))}
    key_of = _key_finder(values, weights, other_names or {})
    found: dict[str, torch.Tensor] = {}
    extra, wrong = [], []
    for name, tensor in values.tensors.items():
        key = key_of(name)
        if key is None:
            if not name.endswith(COUNTER):
                extra.append(name)
            continue
        if key not in wanted:
            continue
        weight = weights[key]
        of_module = values.is_torch and name == key
        value = tensor.t() if weight.transposed and of_module else tensor
        if tuple(value.shape) != tuple(weight.variable.shape):
            there, here = list(tensor.shape), list(weight.variable.shape)
            wrong.append(
                f"{name} (is {there}, must be {here[::-1] if value is not tensor else here})"
            )
            continue
        found[weight.variable.name] = value
    given = {key_of(name) for name in values.tensors}
    missing = [key for key in wanted if key not in given]
    problems = [
        f"{what}: {_shown(names)}"
        for what, names in (("missing", missing), ("unknown", extra), ("wrong shape", wrong))
        if names
    ]
    if problems:
        raise ValueError(
            f"The weights in {values.source} do not match {model}: {'; '.join(problems)}."
        )
    return found


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _key_finder(
    values: Values, weights: Mapping[str, Weight], other_names: Mapping[str, str]
) -> Callable[[str], str | None]:
    """Return a function from a name in the file to a module's key; a file uses one kind of name."""
    by_variable = {weight.variable.name: key for key, weight in weights.items()}
    by_place = {weight.place: key for key, weight in weights.items()}
    by_key = {key: key for key in weights}
    kinds = [by_variable, by_key, by_place, dict(other_names)]
    names = values.tensors.keys()
    best = max(kinds, key=lambda kind: len(kind.keys() & names))
    return best.get
