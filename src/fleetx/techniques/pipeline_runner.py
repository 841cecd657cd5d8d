"""Running batches through a pipeline by torch's schedules, in micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fleetx.comm.layout import Group
from fleetx.runtime import heartbeat

Loss = Callable[[Tensor, Tensor], Tensor]


class StageModule(nn.Module):
    """The layers of a stage, one after another."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Run the layers."""
        for layer in self.layers:
            x = layer(x)
        return x


class PipelineRunner:
    """Runs batches; all workers of a copy must call it with the same ones."""

    def __init__(
        self,
        module: StageModule,
        group: Group,
        *,
        micro_batches: int,
        micro_batch_size: int | None,
        mode: str,
    ) -> None:
        """`micro_batch_size` is None if any will do; `mode` is "1F1B" or "F-then-B"."""
        self._micro_batch_size = micro_batch_size
        self._module = module
        self._group = group
        self._micro_batches = micro_batches
        self._mode = mode
        self._schedules: dict[Any, Any] = {}  # by what shapes between stages follow from

    def train(self, inputs: Tensor, targets: Tensor, loss_fn: Loss) -> Tensor:
        """Run forward and backward of a batch; return the mean loss, the same on all workers."""
        return self._run("step", inputs, targets, loss_fn)

    @torch.no_grad()
    def evaluate(self, inputs: Tensor, targets: Tensor, loss_fn: Loss) -> Tensor:
        """Run forward of a batch; return the mean loss, the same on all workers."""
        return self._run("eval", inputs, targets, loss_fn)

    def _run(self, what: str, inputs: Tensor, targets: Tensor, loss_fn: Loss) -> Tensor:
        count = self._micro_batches
        if not len(inputs) or len(inputs) % count:
            raise ValueError(
                f"a batch has {len(inputs)} samples, which cannot be divided into the {count} "
                "equal micro-batches of pipeline_configs['accumulate_steps']: choose another batch "
                "size, and drop_last=True in the loader."
            )
        wanted = self._micro_batch_size
        if wanted is not None and what == "step" and len(inputs) != count * wanted:
            raise ValueError(
                f"a batch has {len(inputs)} samples, but pipeline_configs['micro_batch_size'] is "
                f"{wanted} and 'accumulate_steps' is {count}: give batches of {count * wanted}, or "
                "leave micro_batch_size out."
            )
        call = getattr(self._schedule(what, inputs, loss_fn), what)
        losses: list[Tensor] = []
        is_last = self._group.rank == self._group.size - 1
        given: dict[str, Any] = {"target": targets, "losses": losses} if is_last else {}
        with heartbeat.collective("micro-batches of the pipeline"):
            call(*((inputs,) if self._group.rank == 0 else ()), **given)
        device = inputs.device
        mean = torch.stack([loss.detach() for loss in losses]).sum() if is_last else None
        found = torch.zeros((), dtype=torch.float64, device=device)
        if mean is not None:
            found = mean.to(torch.float64)
        return self._group.broadcast(found, self._group.size - 1)

    def _schedule(self, what: str, inputs: Tensor, loss_fn: Loss) -> Any:
        from torch.distributed import pipelining

        key = what, inputs.shape, inputs.dtype, loss_fn
        if key not in self._schedules:
            stage = pipelining.PipelineStage(
                self._module,
                self._group.rank,
                self._group.size,
                inputs.device,
                group=self._group.process_group,
            )
            kind: Any = pipelining.ScheduleGPipe
            if self._mode == "1F1B" and what == "step":
                kind = pipelining.Schedule1F1B
            count = self._micro_batches

            def share(outputs: Tensor, targets: Tensor) -> Tensor:
                return loss_fn(outputs, targets) / count

            # Losses are divided, not gradients: these are then as backward leaves them.
            self._schedules[key] = kind(stage, count, loss_fn=share, scale_grads=False)
        return self._schedules[key]
