"""Cutting a model into the stages of a pipeline: layers that compute one after another.

An `nn.Sequential` has its children as layers; another model names them by a method
`pipeline_layers()`. Stages begin where the user says, or so that the largest has as few parameters,
or takes as little time, as possible. A worker keeps the parameters of its own stages only; names
stay those of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fleetx.comm.divided_tensors import leave_to_others
from fleetx.comm.layout import Group

_SETTING = "pipeline_configs['stages']"


def find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers of a model by name, in the order in which they compute."""
    if hasattr(model, "pipeline_layers"):
        names = {id(module): name for name, module in model.named_modules()}
        layers = list(model.pipeline_layers())  # type: ignore[operator]
        if any(id(layer) not in names for layer in layers):
            raise ValueError(
                f"{type(model).__name__}.pipeline_layers() returns modules that are no parts of "
                "the model: return its own."
            )
        return {names[id(layer)]: layer for layer in layers}
    if isinstance(model, nn.Sequential):
        return dict(model.named_children())
    raise ValueError(
        f"pipeline cuts a model between layers that compute one after another, but "
        f"{type(model).__name__} does not say which these are: make it an nn.Sequential, or give "
        "it a method pipeline_layers() that returns them."
    )


def first_layers(
    layers: Mapping[str, nn.Module],
    stages: int,
    given: Sequence[str],
    costs: Sequence[float] = (),
) -> list[int]:
    """Return the number of the layer that each stage begins with: as given, or so that the largest
    stage is small. `costs` are those of the layers; without them, their parameters count."""
    names = list(layers)
    if stages > len(names):
        raise ValueError(
            f"the pipeline has {stages} stages, but the model only {len(names)} layers "
            f"({', '.join(names)}): set a smaller hybrid_configs['pp_degree'], or fewer stages per "
            "worker (pipeline_configs['vpp_degree'])."
        )
    if not given:
        return _balanced(costs or [_size(layer) for layer in layers.values()], stages)
    unknown = [name for name in given if name not in names]
    begins = [0, *(names.index(name) for name in given if name in names)]
    if unknown or len(begins) != stages or begins != sorted(set(begins)):
        raise ValueError(
            f"{_SETTING} is {list(given)}, but it must name the {stages - 1} layer(s) that the "
            f"stages after the first begin with, in order, out of {', '.join(names[1:])}."
        )
    return begins


def _size(layer: nn.Module) -> int:
    return sum(p.numel() for p in layer.parameters())


def _balanced(sizes: Sequence[float], stages: int) -> list[int]:
    """Return where to cut so that the largest part is as small as possible; ties go to the cut with
    more even parts."""
    total = [0.0]
    for size in sizes:
        total.append(total[-1] + size)
    count = len(sizes)
    # best[i]: the cost of the first i layers in the stages so far, and where these begin.
    best: dict[int, tuple[tuple[float, float], list[int]]] = {
        i: ((total[i], total[i] ** 2), [0]) for i in range(1, count + 1)
    }
    for stage in range(2, stages + 1):
        following: dict[int, tuple[tuple[float, float], list[int]]] = {}
        for end in range(stage, count + 1):
            options = []
            for begin in range(stage - 1, end):
                (largest, squares), begins = best[begin]
                own = total[end] - total[begin]
                options.append(((max(largest, own), squares + own**2), [*begins, begin]))
            following[end] = min(options)
        best = following
    return best[count][1]


@dataclass(frozen=True)
class _Outline:
    """A tensor without its values."""

    shape: torch.Size
    dtype: torch.dtype


class OwnStage:
    """The stage or stages of this worker: their layers, and what the others have."""

    def __init__(
        self,
        model: nn.Module,
        group: Group,
        given: Sequence[str],
        workers: Sequence[int],
        costs: Sequence[float] = (),
    ) -> None:
        """`workers` says for every stage which worker of the group has it; `given` and `costs` are
        those of `first_layers`."""
        layers = find_layers(model)
        begins = first_layers(layers, len(workers), given, costs)
        names = list(layers)
        self._group = group
        self._workers = workers
        self._stage_of = {
            name: max(i for i, begin in enumerate(begins) if begin <= place)
            for place, name in enumerate(names)
        }
        self.layers: dict[int, list[nn.Module]] = {
            stage: [layers[name] for name in names if self._stage_of[name] == stage]
            for stage, worker in enumerate(workers)
            if worker == group.rank
        }
        """The layers of each of its stages."""
        self.roots: list[nn.Module] = []
        """What runs the layers of each of its stages."""
        self._check(model)
        self._outlines = {
            name: _Outline(t.shape, t.dtype) for name, t in model.state_dict().items()
        }

    def _stage(self, name: str) -> int | None:
        """Return the stage that has a parameter or buffer; None if none has."""
        found = [layer for layer in self._stage_of if name.startswith(f"{layer}.")]
        return self._stage_of[max(found, key=len)] if found else None

    def _worker(self, name: str) -> int | None:
        """Return the worker that has a parameter or buffer; None if all have it."""
        stage = self._stage(name)
        return None if stage is None else self._workers[stage]

    def _check(self, model: nn.Module) -> None:
        places: dict[int, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if self._stage(name) is None:
                raise ValueError(
                    f"parameter {name!r} is in none of the layers of the pipeline "
                    f"({', '.join(self._stage_of)}): make it a part of one."
                )
            other = places.setdefault(id(parameter), name)
            if self._stage(other) != self._stage(name):
                raise ValueError(
                    f"{other!r} and {name!r} are one parameter, but in different stages of the "
                    f"pipeline ({self._stage(other)} and {self._stage(name)}): give each its own, "
                    f"or set {_SETTING} so that one stage has both."
                )

    def keep(self, model: nn.Module) -> None:
        """Drop the parameters of other stages; their names stay."""
        for name, parameter in model.named_parameters():
            if self._worker(name) != self._group.rank:
                leave_to_others(parameter)

    def has(self, name: str) -> bool:
        """Return whether this worker has a parameter or buffer."""
        return self._worker(name) in (None, self._group.rank)

    def own(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of its stages."""
        return {name: tensor for name, tensor in tensors.items() if self.has(name)}

    def whole_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of all stages, for which all workers must call it."""
        found: dict[str, Any] = {}
        for name, value in state.items():
            worker, outline = self._worker(name), self._outlines.get(name)
            if worker is not None and outline is not None:
                if worker != self._group.rank:
                    value = torch.empty(outline.shape, dtype=outline.dtype)
                value = self._group.broadcast(value, worker)
            found[name] = value
        return found

    def own_state(self, state: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
        """Return the part of a whole state that this worker can load, with the others' names."""
        empty = {name: t.detach() for name, t in model.state_dict().items()}
        return {
            name: value if self.has(name) else empty.get(name, value)
            for name, value in state.items()
        }
