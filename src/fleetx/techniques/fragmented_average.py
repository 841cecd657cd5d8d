"""Averaging the fragments of a model one by one in the background, and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fleetx.comm.gradient_all_reduce import GradientExchange
from fleetx.comm.share_sums import share_sums
from fleetx.kernels import rounded_blocks
from fleetx.step.stages import Parameters
from fleetx.techniques.parameter_average import (
    WHOLE,
    AverageConfig,
    Blend,
    OuterStep,
    ParameterAverage,
)


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """The settings of averages that overlap with training."""

    overlap_steps: int
    fragments: int
    blend: Blend

    @classmethod
    def from_config(cls, config: AverageConfig) -> Streaming | None:
        """Return these settings of a technique; None for the plain average."""
        found = cls(
            overlap_steps=config.overlap_steps,
            fragments=config.fragments,
            blend=Blend(
                share=config.blend,
                keep_local_steps=config.keep_local_steps,
                bits=config.exchange_bits,
                by_shares=config.sum_by_shares,
            ),
        )
        is_plain = found.fragments == 1 and config.blend == 1.0 and config.exchange_bits == WHOLE
        return None if is_plain and found.overlap_steps == 0 else found

    def text(self) -> str:
        """Return the settings as `fleet.explain()` shows them."""
        steps = f"{self.overlap_steps} step{'s' if self.overlap_steps > 1 else ''}"
        parts = [f", applied {steps} later"] if self.overlap_steps else []
        if self.fragments > 1:
            parts.append(f", {self.fragments} fragments in turn")
        if self.blend.share != 1.0:
            parts.append(f", blend {self.blend.share:g}")
        if self.blend.bits != WHOLE:
            parts.append(f", {self.blend.bits}-bit differences")
        if self.blend.by_shares:
            parts.append(" summed by shares")
        return "".join(parts)


def check(name: str, config: AverageConfig, k_steps: int, *, adapts: bool) -> None:
    """Raise ValueError for invalid settings; `adapts`: the interval is only the initial one."""
    where = f"{name}_configs"
    if config.exchange_bits not in (WHOLE, *rounded_blocks.BITS):
        raise ValueError(
            f'{where}["exchange_bits"] is {config.exchange_bits}, but differences travel in 32, 8 '
            "or 4 bits: choose one of these."
        )
    if config.sum_by_shares and config.exchange_bits == WHOLE:
        raise ValueError(
            f'{where}["sum_by_shares"] is on, but differences that travel in 32 bits are summed by '
            "an all-reduce: set exchange_bits to 8 or 4, or leave it out."
        )
    if config.blend > 1.0:
        raise ValueError(
            f'{where}["blend"] is {config.blend:g}, but parameters move to the average at most all '
            "the way: choose a number up to 1."
        )
    if adapts:
        return
    for setting in ("overlap_steps", "fragments"):
        value = getattr(config, setting)
        if value > k_steps:
            raise ValueError(
                f'{where}["{setting}"] is {value}, but an interval has {k_steps} steps, in which '
                "each part of the model is averaged once: lower it, or raise k_steps."
            )


class FragmentedAverage:
    """The parts of a model, each with an average of its own; all workers call it together."""

    keeps_snapshot = True

    def __init__(self, exchange: GradientExchange, outer: OuterStep, streaming: Streaming) -> None:
        sums = share_sums() if streaming.blend.by_shares else None
        self._parts = [
            ParameterAverage(exchange, outer, streaming.blend, sums)
            for _ in range(streaming.fragments)
        ]
        self._overlaps = streaming.overlap_steps > 0

    def __len__(self) -> int:
        return len(self._parts)

    def remember(self, trained: Parameters) -> None:
        """Take the snapshots of parameters that have none yet, before a first update."""
        for part, own in zip(self._parts, self.divide(trained), strict=True):
            part.remember(own)

    def divide(self, trained: Parameters) -> list[dict[str, torch.Tensor]]:
        """Return the parameters of each part: consecutive ones, about as many entries each."""
        if len(trained) < len(self._parts):
            raise ValueError(
                f"fragments is {len(self._parts)}, but the model trains {len(trained)} parameters, "
                "which are not divided: use at most as many fragments."
            )
        total = sum(t.numel() for t in trained.values())
        parts: list[dict[str, torch.Tensor]] = [{}]
        done, left = 0, len(trained)
        for name, tensor in trained.items():
            missing = len(self._parts) - len(parts)
            is_full = done + tensor.numel() / 2 > total * len(parts) / len(self._parts)
            if parts[-1] and missing and (is_full or left <= missing):
                parts.append({})
            parts[-1][name] = tensor
            done += tensor.numel()
            left -= 1
        return parts

    def average(
        self, trained: Parameters, others: Sequence[torch.Tensor], *, is_begin: bool
    ) -> None:
        """Make parameters equal on all workers now, and others (statistics) their mean."""
        for i, (part, own) in enumerate(zip(self._parts, self.divide(trained), strict=True)):
            part.average(own, others if i == 0 else (), is_begin=is_begin)

    def is_under_way(self, number: int) -> bool:
        """Return whether the average of a part is in flight."""
        return self._parts[number].is_under_way

    def start(self, number: int, own: Parameters, others: Sequence[torch.Tensor]) -> None:
        """Start averaging a part in the background."""
        self._parts[number].start(own, others, overlaps=self._overlaps)

    def finish(self, number: int, own: Parameters, others: Sequence[torch.Tensor]) -> None:
        """Apply the average of a part."""
        self._parts[number].finish(own, others)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the parts, by parameter name, and the averages in flight."""
        kinds: dict[str, dict[str, torch.Tensor]] = {}
        for part in self._parts:
            for kind, values in part.state_dict().items():
                kinds.setdefault(kind, {}).update(values)
        return {
            "kinds": kinds,
            "under_way": [part.is_under_way for part in self._parts],
            "others": [part.means_of_others() for part in self._parts],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        if len(state["under_way"]) != len(self._parts):
            raise ValueError(
                f"fragments is {len(self._parts)}, but the state to load has "
                f"{len(state['under_way'])}: use as many."
            )
        rows = zip(self._parts, state["under_way"], state["others"], strict=True)
        for part, is_under_way, others in rows:
            part.load_state_dict(state["kinds"], is_under_way=is_under_way, others=others)
