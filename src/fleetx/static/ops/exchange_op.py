"""exchange_gradients: the exchange of gradients of a technique that has no ops of its own.

The op carries the technique's name and settings; what it runs is the technique's own stage, given
from above. State is in persistable variables, so that it is saved with the program's others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import cache
from typing import Protocol

from torch import Tensor

from fleetx.static.errors import ExecutionError
from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.ops.optimizer_ops import infer_inplace

EXCHANGE = "exchange_gradients"


class GradientMean(Protocol):
    """What averages gradients over workers."""

    def mean(
        self, gradients: Mapping[str, Tensor], state: MutableMapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the means by name; change the state in place."""


_makers: dict[str, Callable[[str], GradientMean]] = {}


def provide(technique: str, make: Callable[[str], GradientMean]) -> None:
    """Say how the exchange of a technique is made from its settings (JSON)."""
    _makers[technique] = make
    _made.cache_clear()


@cache
def _made(technique: str, settings: str) -> GradientMean:
    if technique not in _makers:
        raise ExecutionError(
            f"this program exchanges gradients by {technique!r}, which is not registered here: "
            "import the package that has it, or call fleet.register, before running the program."
        )
    return _makers[technique](settings)


@op(
    EXCHANGE,
    inputs="Grad* State*?",
    outputs="GradOut* StateOut*?",
    attrs={
        "technique": "",
        "settings": "{}",
        "params": Attr("STRINGS", []),
        "state_names": Attr("STRINGS", []),
    },
    grad=None,
    infer=infer_inplace,
    inplace={"StateOut": "State"},
    side_effect=True,
)
def exchange_gradients(
    grads: list[Tensor],
    states: list[Tensor],
    *,
    technique: str,
    settings: str,
    params: list[str],
    state_names: list[str],
) -> tuple[list[Tensor], list[Tensor]]:
    """Average gradients over workers as a technique does."""
    state = dict(zip(state_names, states, strict=True))
    means = _made(technique, settings).mean(dict(zip(params, grads, strict=True)), state)
    return [means[name] for name in params], states
