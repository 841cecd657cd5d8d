"""Candidates of `auto`: combinations of switches on top of what the strategy already says.

Only what changes speed and memory is tried, unless `auto_configs` allows techniques that change
the mathematics.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from fleetx.step.registry import known
from fleetx.step.settings import read, setting


@dataclass(frozen=True)
class Candidate:
    """Settings to change on the strategy; the name says which."""

    name: str
    changes: Mapping[str, Any]

    def applied_to(self, strategy: Any) -> Any:
        """Return a copy of the strategy with these settings, and without auto."""
        result = copy.deepcopy(strategy)
        result.auto = False
        for key, value in self.changes.items():
            setattr(result, key, value)
        return result


def changing_mathematics() -> list[str]:
    """Return the techniques that are tried only if `auto_configs["techniques"]` names them."""
    return [t.name for t in known() if not (t.keeps_mathematics or t.switch)]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a choice depends on: it is reused only if all of this is identical."""

    workers: int
    """Those that exchange gradients among themselves; 1 in a job with servers."""
    device: str
    parameters: int
    """Elements of all of them."""
    machines: int = 1
    servers: int = 0
    hardware: str = ""
    model: str = ""
    """A digest of its layers and of its parameters' names, shapes and types."""
    optimizer: str = ""
    batch: str = ""
    """Shapes and types of the first batch."""
    strategy: Mapping[str, str] = field(default_factory=dict)
    """What the script has set, by name, but for how `auto` measures and remembers."""
    versions: str = ""

    def flat(self) -> dict[str, Any]:
        """Return everything by name, one level deep."""
        found = asdict(self)
        return {**found.pop("strategy"), **found}


@dataclass(frozen=True, kw_only=True)
class AutoConfig:
    """The settings of `auto_configs`."""

    steps: int = setting(5, number=1, least=1)
    """Steps to measure of each candidate."""
    time_limit: float = setting(120.0, number=2, above=0)
    """Seconds after which no other candidate is tried."""
    memory_limit_mb: float = setting(0.0, number=3, least=0)
    """MB that a step may need; 0 for what there is."""
    techniques: tuple[str, ...] = setting((), number=4, element=str)
    """Techniques to try although they change the mathematics."""
    file: str = setting("", number=5)
    """File that remembers the choice."""
    worker_memory_mb: float = setting(0.0, number=6, least=0)
    """MB that a worker may hold of parameters, gradients, optimizer state and activations; ways to
    divide the model (sharding, tensor_parallel, pipeline) are tried too, and what does not fit is
    not measured. 0 for no limit."""

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> AutoConfig:
        """Return the settings of a strategy."""
        found = read(cls, settings)
        allowed = changing_mathematics()
        unknown = [name for name in found.techniques if name not in allowed]
        if unknown:
            raise ValueError(
                f"auto_configs['techniques'] names {unknown[0]!r}; it may name "
                f"{', '.join(allowed)}."
            )
        return found


Way = tuple[str, dict[str, Any]]
"""A name, and settings to change."""


def candidates(
    strategy: Any, config: AutoConfig, job: Facts, more: Sequence[Sequence[Way]] = ()
) -> list[Candidate]:
    """Return what to try, the plain strategy first, then by the number of changes.

    `more` has further choices, of each of which at most one way is taken.
    """
    workers, machines = job.workers, job.machines
    choices: list[list[Way]] = []

    def choice(*options: Way) -> None:
        choices.append([("", {}), *options])

    acting = [kind for kind in known() if workers > 1 or not kind.needs_workers]
    for kind in acting:
        ways = kind.trials(strategy, job.device)
        if kind.keeps_mathematics and ways and not kind.is_on(strategy):
            choice(*ways)
    if workers > 1:
        if machines > 1 and workers > machines and not strategy.use_hierarchical_allreduce:
            group = {"hierarchical_allreduce_inter_nranks": workers // machines}
            choice(("hierarchical", {"use_hierarchical_allreduce": True, **group}))
        if job.parameters * 4 > 4e6 and not strategy.was_set("fuse_grad_size_in_MB"):
            choice(("buckets of 4 MB", {"fuse_grad_size_in_MB": 4}))
    for further in more:
        choice(*further)
    allowed = {kind.name: kind for kind in acting if kind.name in config.techniques}
    if allowed:
        named = [allowed[name] for name in config.techniques if name in allowed]
        choice(*(option for kind in named for option in kind.trials(strategy, job.device)))
    found = []
    for options in product(*choices):
        names = [name for name, _ in options if name]
        changes = {key: value for _, part in options for key, value in part.items()}
        found.append((len(names), Candidate(" + ".join(names) or "as it is", changes)))
    return [candidate for _, candidate in sorted(found, key=lambda item: item[0])]
