"""demo: decoupled momentum. Workers keep local momenta and send their fast components.

DeMo (https://arxiv.org/abs/2411.19870): each worker adds its gradient to its momentum, sends the
largest DCT coefficients of each block of it, and subtracts what it has sent. The update is the sign
of the mean over all workers, times the learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD

from fleetx.comm import world
from fleetx.kernels.cosine_blocks import Blocks
from fleetx.runtime import heartbeat
from fleetx.step.named_stages import NamedExchange, State
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep

MOMENTUM = "@DEMO_MOMENTUM"
_LARGEST_BLOCK = 128
"""Positions in a block of so many rows and columns fit into 16 bits."""
_VALUE_BYTES, _POSITION_BYTES = 4, 2


@dataclass(frozen=True, kw_only=True)
class Config:
    """The part of the momenta that is sent."""

    decay: float = setting(0.999, number=1001, least=0)
    """Decay factor of the momentum per step; below 1."""
    top_k: int = setting(32, number=1002, least=1)
    """Coefficients of a block that are sent."""
    block: int = setting(64, number=1003, least=1)
    """Rows and columns of a block, at most 128."""
    sign: bool = setting(True, number=1004)
    """Update with the sign of the exchanged momentum instead of its values."""


class DecoupledMomentum(NamedExchange):
    """Sends the largest coefficients of local momenta, after backward."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config

    def first_state(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return momenta shaped like the gradients."""
        return {name + MOMENTUM: torch.zeros_like(g) for name, g in gradients.items()}

    @torch.no_grad()
    def mean(self, gradients: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
        """Return the update: the mean of the sent components over all workers, or its sign."""
        if not gradients:
            return {}
        blocks = {n: Blocks.of(tuple(g.shape), self._config.block) for n, g in gradients.items()}
        messages = [self._message(blocks[n], g, state[n + MOMENTUM]) for n, g in gradients.items()]
        sizes = [message.numel() for message in messages]
        with heartbeat.collective("decoupled momentum"):
            received = [whole.split(sizes) for whole in world.all_gather(torch.cat(messages))]
        found = {}
        for number, (name, gradient) in enumerate(gradients.items()):
            parts = [split[number] for split in received]
            mean = self._mean(blocks[name], parts, gradient)
            if self._config.sign:  # NaN stays NaN, so that checks of the update see it
                mean = torch.where(mean.isnan(), mean, mean.sign())
            found[name] = mean
        return found

    def _message(self, blocks: Blocks, gradient: Tensor, momentum: Tensor) -> Tensor:
        """Add a gradient to its momentum; subtract and return the largest coefficients, as
        bytes.
        """
        momentum.mul_(self._config.decay).add_(gradient)
        coefficients = blocks.coefficients(momentum)
        places, values = blocks.largest(coefficients, self._config.top_k)
        values = values.float()
        sent = torch.zeros_like(coefficients).scatter_(1, places, values.to(coefficients.dtype))
        momentum.sub_(blocks.tensor(sent, momentum))
        parts = (values, places.to(torch.int16))
        return torch.cat([part.reshape(-1).view(torch.uint8) for part in parts])

    def _mean(self, blocks: Blocks, messages: list[Tensor], like: Tensor) -> Tensor:
        """Return the mean of the decompressed messages, summed in rank order."""
        count = blocks.count * blocks.kept(self._config.top_k)
        total = like.new_zeros(blocks.count, blocks.entries)
        for message in messages:
            head, tail = message.split([count * _VALUE_BYTES, count * _POSITION_BYTES])
            # Copies begin at addresses that the types can be read from.
            values = head.clone().view(torch.float32).to(like.dtype).view(blocks.count, -1)
            places = tail.clone().view(torch.int16).long().view(blocks.count, -1)
            total.scatter_add_(1, places, values)
        return blocks.tensor(total.div_(len(messages)), like)

    def message_bytes(self, shape: tuple[int, ...]) -> int:
        """Return the size of the message for a gradient."""
        blocks = Blocks.of(shape, self._config.block)
        return blocks.count * blocks.kept(self._config.top_k) * (_VALUE_BYTES + _POSITION_BYTES)


@register
class DeMo(Technique[Config]):
    """Momenta stay local, and only their fast components are sent."""

    name = "demo"
    order = Order.EXCHANGE
    replaces = frozenset({Stage.GRAD_SYNC})
    refuses = {
        "fp16_allreduce": "demo sends coefficients, which fp16_allreduce does not convert",
        "lars": "demo has the momentum in its exchange, and lars has one in its update",
        "lamb": "demo has the momentum in its exchange, and lamb has one in its update",
    }
    needs_workers = True
    differs_by_worker = True

    def check(self) -> None:
        """Reject settings that have no effect."""
        if self.config.decay >= 1.0:
            raise ValueError(
                f'demo_configs["decay"] is {self.config.decay:g}, with which a momentum never '
                "forgets: choose a number below 1."
            )
        if self.config.block > _LARGEST_BLOCK:
            raise ValueError(
                f'demo_configs["block"] is {self.config.block}, but positions in a block travel in '
                f"16 bits: choose at most {_LARGEST_BLOCK}."
            )

    def check_optimizer(self, optimizer: Any) -> None:
        """Reject optimizers with a momentum of their own."""
        from fleetx.static.optimizer import SGDOptimizer

        name = type(optimizer).__name__
        if isinstance(optimizer, SGDOptimizer):
            return
        if not isinstance(optimizer, SGD) or any(g["momentum"] for g in optimizer.param_groups):
            raise ValueError(
                f"demo has the momentum in its exchange, and the optimizer is {name} with more "
                "than plain SGD does: use torch.optim.SGD without momentum, or switch off demo."
            )

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Exchange coefficients after backward."""
        step.grad_sync = DecoupledMomentum(self.config)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the bytes of a step, and the memory of the momenta."""
        sync = DecoupledMomentum(self.config)
        config = self.config
        return [
            Row(
                stage=Stage.GRAD_SYNC,
                technique=self.name,
                settings=f"{config.top_k} coefficients of {config.block} x {config.block} entries"
                + (", sign" if config.sign else ""),
                bytes_sent=(self.job.workers - 1.0) * sum(map(sync.message_bytes, sizes.shapes)),
                memory=sizes.parameter_bytes,
            )
        ]
