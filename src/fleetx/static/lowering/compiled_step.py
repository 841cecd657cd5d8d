"""Compiling a lowered step: forward and backward become one graph for torch's compiler.

The part of the step up to the last gradient is traced to ATen ops with the values of persistable
variables as inputs, and compiled by Inductor for the shapes at hand. The updates that
follow are already a few fused calls and are not compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from fleetx import torch_private
from fleetx.static.lowering.codegen import LoweredStep
from fleetx.static.lowering.generated_code import (
    Function,
    Line,
    code,
    listed,
    local,
    render,
    statement,
)
from fleetx.static.run.scope import ScopeVariable


def compile_step(step: LoweredStep, feeds: list[torch.Tensor]) -> Callable[..., list[Any]]:
    """Return `step.run`, compiled for feeds of these shapes."""
    arguments, lines = step.function.arguments, step.function.lines
    before, after = lines[: step.boundary], lines[step.boundary :]
    made = {*arguments, *(name for line in before for name in line.writes)}
    live = sorted({name for line in after for name in line.reads} & made)
    written = sorted({name for line in before for name in line.stores})
    loaded = {name for line in before for name in line.loads}
    # What the first run makes has no value to begin with.
    holders = sorted(loaded | {n for n in written if step.namespace[n].value is not None})
    stand_ins = {name: ScopeVariable(name) for name in {*holders, *written}}
    results = statement(code("return [{}]", listed(map(local, live))))
    first = _define(
        Function("first", arguments, [*before, results]), {**step.namespace, **stand_ins}
    )
    second = _define(Function("second", live, [Line("set_grad(False)"), *after]), step.namespace)
    count = len(feeds)

    def traced(*args: torch.Tensor) -> list[torch.Tensor]:
        for name, value in zip(holders, args[count:], strict=True):
            stand_ins[name].value = value
        return [*first(*args[:count]), *(stand_ins[h].value for h in written)]

    real = [step.namespace[h] for h in holders]
    compiled = _compile(traced, [*feeds, *(h.value for h in real)])
    written_real = [step.namespace[h] for h in written]
    split = len(live)

    def run(*tensors: torch.Tensor) -> list[Any]:
        torch_private.set_grad_enabled(False)
        values = compiled(*tensors, *(h.value for h in real))
        for holder, value in zip(written_real, values[split:], strict=True):
            holder.value = value
        result: list[Any] = second(*values[:split])
        return result

    return run


def _define(function: Function, namespace: dict[str, Any]) -> Callable[..., Any]:
    source, _ = render([function])
    namespace = dict(namespace)
    exec(compile(source, f"<fleetx {function.name}>", "exec"), namespace)  # written by codegen
    defined: Callable[..., Any] = namespace[function.name]
    return defined


def _compile(
    function: Callable[..., list[torch.Tensor]], examples: list[torch.Tensor]
) -> Callable[..., Any]:
    from torch.fx.experimental.proxy_tensor import make_fx

    was_enabled = torch.is_grad_enabled()
    try:
        graph = make_fx(function)(*[t.detach().clone() for t in examples])
        torch_private.set_grad_enabled(False)
        compiled: Any = torch_private.compile_fx(graph, examples)
        compiled(*examples)  # compiles now, so that an error appears here and not in a later step
    except Exception as error:
        raise RuntimeError(
            "BuildStrategy.enable_auto_fusion is on, but this program cannot be compiled "
            f"({type(error).__name__}: {str(error).strip().splitlines()[0]}); switch it off."
        ) from error
    finally:
        torch_private.set_grad_enabled(was_enabled)
    return cast("Callable[..., Any]", compiled)
