"""Modules whose activations are dropped after forward and recomputed in backward.

A module runs under torch's activation checkpointing: only its inputs are kept. The second run
repeats the first one exactly: random numbers are the same, buffers that the module changes in
forward (running statistics, power iterations) get their old values and keep the current ones
afterwards, and modes that were active in the first run, such as another precision for some
functions, are active in the second.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from fleetx import torch_private
from fleetx.torch_private import buffers_of

Place = tuple[nn.Module, str]  # a module and the name of one of its buffers
Old = tuple[nn.Module, str, Tensor | None]  # and its value


class Checkpointed:
    """The forward function of a module, with its activations recomputed in backward.

    It replaces the module's `forward`; copying the module copies it too.
    """

    def __init__(self, module: nn.Module, name: str, *, offload: bool = False) -> None:
        self._forward: Callable[..., Any] = module.forward
        self._module = module
        self._name = name
        self._offload = offload
        self._stateful: list[Place] | None = None  # buffers that forward changes, once known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module; without gradients, nothing is stored or recomputed."""
        if not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)
        places = self._places() if self._stateful is None else self._stateful
        before: list[Old] = [(m, n, _clone(buffers_of(m)[n])) for m, n in places]
        versions = [(m, n, _version(buffers_of(m)[n])) for m, n in self._places()]
        modes = [
            m
            for m in torch_private.current_function_modes()
            if not isinstance(m, torch_private.DeviceContext)
        ]

        def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
            return nullcontext(), _AsBefore(before, modes)

        with torch.autograd.graph.save_on_cpu() if self._offload else nullcontext():
            result = checkpoint(
                self._forward, *args, use_reentrant=False, context_fn=contexts, **kwargs
            )
        changed = [(m, n) for m, n, version in versions if _version(buffers_of(m)[n]) != version]
        self._note(changed)
        kept = {(id(m), n) for m, n in self._stateful or ()}
        before[:] = [item for item in before if (id(item[0]), item[1]) in kept]
        return result

    def _places(self) -> list[Place]:
        modules = self._module.modules()
        return [(m, n) for m in modules for n, b in buffers_of(m).items() if b is not None]

    def _note(self, changed: list[Place]) -> None:
        """Record which buffers forward changes: only those are copied in later steps."""
        if self._stateful is None:
            # Kernels of batch norms change running statistics without telling autograd.
            moved = [(m, n) for m, n in self._places() if isinstance(m, torch_private.NormBase)]
            known = {(id(m), n) for m, n in moved}
            self._stateful = [*moved, *((m, n) for m, n in changed if (id(m), n) not in known)]
            return
        known = {(id(m), n) for m, n in self._stateful}
        for module, name in changed:
            if (id(module), name) not in known:
                raise RuntimeError(
                    f"module {self._name!r} has changed its buffer {name!r} in forward, which it "
                    "did not do in its first step, so it cannot be computed again: leave it out of "
                    "recompute_configs['checkpoints']."
                )


def _clone(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None else buffer.detach().clone()


def _version(buffer: Tensor | None) -> tuple[int, int]:
    return (0, 0) if buffer is None else (id(buffer), torch_private.version_of(buffer))


class _AsBefore:
    """Sets the buffers of the first run, and restores the current ones on exit.

    It is reentrant: backward may run twice.
    """

    def __init__(self, before: list[Old], modes: list[TorchFunctionMode]) -> None:
        self._before = before
        self._modes = modes
        self._now: list[Old] = []
        self._stack = ExitStack()

    def __enter__(self) -> None:
        for mode in self._modes:
            self._stack.enter_context(mode)
        self._now = [(module, name, buffers_of(module)[name]) for module, name, _ in self._before]
        for module, name, value in self._before:
            buffers_of(module)[name] = _clone(value)

    def __exit__(self, *_: object) -> None:
        for module, name, value in self._now:
            buffers_of(module)[name] = value
        self._stack.close()
