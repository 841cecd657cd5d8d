"""The network of elastic_worker as a program, with the same initial values."""

from __future__ import annotations

from typing import Any

import torch
from elastic_worker import make_model

from fleetx import fleet, static
from fleetx.static import layers
from fleetx.static.lr import StepDecay

_NAMES = ("w0", "b0", "w1", "b1")


class ProgramTrainer:
    """A program, its executor and a scheduler."""

    def __init__(self, width: int = 3) -> None:
        """With another width than 3 the network is in float32, with values of its own."""
        first = make_model()  # before the startup program draws numbers
        kind = "float64" if width == 3 else "float32"
        x = layers.cast(static.data("x", [None, 4], "float64"), kind)
        y = layers.cast(static.data("y", [None, 1], "float64"), kind)
        hidden = layers.fc(x, width, act="tanh", param_attr="w0", bias_attr="b0", name="hidden")
        if width != 3:
            hidden = layers.fc(hidden, width, param_attr="w2", bias_attr=False)
        out = layers.fc(hidden, 1, param_attr="w1", bias_attr="b1")
        self._loss = layers.mean(layers.square(out - y))
        self.scheduler = StepDecay(0.1, 5, gamma=0.9)
        inner = static.optimizer.Momentum(self.scheduler, 0.9)
        fleet.distributed_optimizer(inner).minimize(self._loss)
        self._executor = static.Executor()
        self._executor.run(static.default_startup_program())
        for name, value in zip(_NAMES, first.parameters(), strict=True) if width == 3 else ():
            content = value.detach().t() if value.dim() == 2 else value.detach()
            static.global_scope().find_var(name).get_tensor().set(
                content.contiguous().numpy(), static.CPUPlace()
            )
        self._batch: dict[str, Any] = {}

    def compute(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Keep the batch: a run does everything."""
        self._batch = {"x": x.numpy(), "y": y.numpy()}

    def update(self) -> None:
        """Run the program."""
        (loss,) = self._executor.run(feed=self._batch, fetch_list=[self._loss])
        assert loss.shape in ((), (1,))

    def parameters(self) -> list[Any]:
        """Return the values of all parameters, in the shapes of the module's."""
        values = [static.global_scope().find_var(name).get_tensor() for name in _NAMES]
        tensors = [torch.as_tensor(value.numpy()) for value in values]
        return [t.t().tolist() if t.dim() == 2 else t.tolist() for t in tensors]
