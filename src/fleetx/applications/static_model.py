"""The base of static applications: programs, inputs, the loss, and weights.

A subclass implements `build()`: it adds layers to the default programs and sets `inputs`, `loss`,
`target`, `checkpoints` and `weights`. The constructor calls it in new programs, with names counted
from zero (so that every instance has the same names, and files match), and leaves those programs as
the default ones: later additions of an optimizer, and `default_startup_program()`, belong to the
model.

`make_module()` returns the same network as a module; `weights` maps between the two:
`weights_of(layer)` finds it for static layers with the structure of the module, other networks
list each weight by hand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fleetx.applications.named_targets import Targets
from fleetx.applications.weights import COUNTER, Values, Weight, match, read_values
from fleetx.checkpoint.atomic import atomic_write
from fleetx.checkpoint.paddle_tensor import Record
from fleetx.static import io, unique_name
from fleetx.static.graph.default_programs import (
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.io.scope_values import put_values
from fleetx.static.readers.batch import batch
from fleetx.static.readers.generator_loader import GeneratorLoader
from fleetx.static.run.executor import Executor
from fleetx.static.run.place import CPUPlace
from fleetx.static.run.scope import global_scope


class StaticModel:
    """A network as a pair of programs, ready for `optimizer.minimize(model.loss)`."""

    inputs: list[Variable]
    """The inputs, in the order of a sample."""
    loss: Variable
    """The loss, of shape [1]."""
    target: Targets
    """Other variables worth fetching, such as accuracies: a list with names."""
    checkpoints: list[str]
    """Names of the checkpoints for recompute: outputs of blocks."""
    weights: dict[str, Weight]
    """Every weight by its key in the module."""
    main_prog: Program
    """The program of a training step, forward only until an optimizer minimises the loss."""
    startup_prog: Program
    """The program that initialises parameters."""

    def __init__(self) -> None:
        self.inputs, self.checkpoints, self.weights = [], [], {}
        self.target = Targets({})
        self.main_prog, self.startup_prog = Program(), Program()
        generator = unique_name.UniqueNameGenerator()
        with program_guard(self.main_prog, self.startup_prog), unique_name.guard(generator):
            self.build()
        switch_main_program(self.main_prog)
        switch_startup_program(self.startup_prog)
        _go_on_numbering(generator)

    def build(self) -> None:
        """Add the network to the default programs and set the attributes."""
        raise NotImplementedError(f"{type(self).__name__} does not define build().")

    def make_module(self) -> torch.nn.Module:
        """Return the same network as a module, with its own weights."""
        raise NotImplementedError(f"{type(self).__name__} has no module.")

    def other_names(self) -> dict[str, str]:
        """Return the names of weights in files of other versions, with their keys."""
        return {}

    # -- Fleet's names ---------------------------------------------------------------------------
    def get_loss(self) -> Variable:
        """Return the loss."""
        return self.loss

    def parameter_list(self) -> list[Parameter]:
        """Return the parameters of the program."""
        return self.main_prog.all_parameters()

    def startup_program(self) -> Program:
        """Return the program that initialises parameters."""
        return self.startup_prog

    def main_program(self) -> Program:
        """Return the program of a step."""
        return self.main_prog

    # -- weights ---------------------------------------------------------------------------------
    def load_params(self, path: str | os.PathLike[str], leave_out: Sequence[str] = ()) -> None:
        """Load weights from a folder or file of Paddle or of safetensors; nothing is downloaded.

        Run the startup program first. ``leave_out`` are prefixes of keys whose weights keep their
        values, such as ``["fc."]`` for a new set of classes.
        """
        names = [weight.variable.name for weight in self.weights.values()]
        self._put(read_values(path, names, self.other_names()), leave_out)

    def save_params(self, path: str | os.PathLike[str]) -> None:
        """Save the parameters: a folder of Paddle's variables, or a file ``*.safetensors``.

        A safetensors file has a module's names and layout.
        """
        if os.fspath(path).endswith(".safetensors"):
            from safetensors.torch import save

            data = save(self.module_state(), metadata={"format": "pt"})
            with atomic_write(path) as stream:
                stream.write(data)
            return
        io.save_params(Executor(CPUPlace()), path, self.main_prog)

    def module_state(self) -> dict[str, torch.Tensor]:
        """Return copies of the current weights in the form of the module's `state_dict`."""
        state = {}
        for key, weight in self.weights.items():
            value = self._value(weight.variable.name)
            value = value.t() if weight.transposed else value
            state[key] = value.detach().to("cpu", copy=True).contiguous()
        return state

    def load_module_state(self, state: dict[str, torch.Tensor]) -> None:
        """Load the `state_dict` of the module."""
        tensors = {key: tensor.detach() for key, tensor in state.items()}
        self._put(Values(source="the module", tensors=tensors, is_torch=True), ())

    def to_module(self) -> torch.nn.Module:
        """Return the network as a module with the current weights."""
        module = self.make_module()
        state = self.module_state()
        # The program does not count batches: the module keeps its own counters.
        kept = {k: v for k, v in module.state_dict().items() if k.endswith(COUNTER)}
        module.load_state_dict(kept | state)
        return module

    def _put(self, values: Values, leave_out: Sequence[str]) -> None:
        for weight in self.weights.values():
            self._value(weight.variable.name)
        found = match(
            values,
            self.weights,
            model=type(self).__name__,
            other_names=self.other_names(),
            leave_out=leave_out,
        )
        dtypes = {w.variable.name: to_torch(w.variable.dtype) for w in self.weights.values()}
        # Copies: the scope takes ownership, and training must not write to other tensors.
        records = {
            name: Record(value.to("cpu", dtypes[name], copy=True).contiguous().numpy(), [])
            for name, value in found.items()
        }
        put_values(records)

    @staticmethod
    def _value(name: str) -> torch.Tensor:
        held: Any = global_scope().find_var(name)
        if held is None or held.value is None:
            raise RuntimeError(
                f"Variable {name!r} has no value yet: run the startup program, exe.run("
                "model.startup_prog), before weights are loaded or read."
            )
        return held.value

    # -- data --------------------------------------------------------------------------------------
    def loader(self, capacity: int = 16) -> GeneratorLoader:
        """Return a loader of this model's inputs; set its source with a `set_*` method.

        Its passes yield feeds for `Executor.run(feed=...)`, prefetched in the background.
        """
        return GeneratorLoader(feed_list=self.inputs, capacity=capacity, iterable=True)

    def sample_loader(self, samples: Callable[[], Iterator[Any]], size: int) -> GeneratorLoader:
        """Return a loader of a Paddle reader's samples, in batches of `size`."""
        return self.loader().set_sample_list_generator(batch(samples, size), places=CPUPlace())

    def batch_loader(self, batches: Callable[[], Iterator[Any]]) -> GeneratorLoader:
        """Return a loader of a Paddle reader's batches."""
        return self.loader().set_batch_generator(batches, places=CPUPlace())


def _go_on_numbering(used: unique_name.UniqueNameGenerator) -> None:
    """Make later names start after those that ``used`` has generated."""
    current = unique_name.switch()
    unique_name.switch(current)
    for key, number in used.ids.items():
        current.ids[key] = max(current.ids[key], number)
