"""Count the position in data without a `state_dict`: a `DataLoader`, a reader, any iterable.

The random states, epochs and generators at the start of a pass determine its order. To resume in
the middle of a pass they are set again, the used batches are read again and dropped, and then the
current random states are restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fleetx.fleet.saving import random_states


class Resumable:
    """Iterates over data and counts its batches; see `fleet.resumable`."""

    def __init__(self, data: Any) -> None:
        if hasattr(data, "state_dict"):
            raise TypeError(
                f"a {type(data).__name__} has a state_dict with its position: save it directly, "
                "without fleet.resumable(…)."
            )
        if isinstance(data, Iterator):
            raise TypeError(
                "fleet.resumable needs data that can be iterated over again, such as a "
                "DataLoader, not an iterator."
            )
        self.data = data
        self._passes = 0
        self._batches = 0
        self._begun: dict[str, Any] | None = None
        self._is_due = False

    def __len__(self) -> int:
        return len(self.data)

    def __getattr__(self, name: str) -> Any:
        if name == "data":  # not there yet, as in a copy that is being made
            raise AttributeError(name)
        return getattr(self.data, name)

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass, or continue the one in which the loaded position is."""
        if self._is_due and self._begun is not None:
            batches = self._continue(self._begun)
        else:
            self._begun, self._batches = self._capture(), 0
            batches = iter(self.data)
        self._is_due = False
        for batch in batches:
            self._batches += 1
            yield batch
        self._begun, self._batches = None, 0
        self._passes += 1

    def _continue(self, begun: dict[str, Any]) -> Iterator[Any]:
        now = random_states.capture()
        self._set(begun)
        batches = iter(self.data)
        for _ in range(self._batches):
            if next(batches, self) is self:
                raise ValueError(
                    f"the data ends before batch {self._batches}, at which the checkpoint was "
                    "written: resume with the same data."
                )
        random_states.restore(now)
        return batches

    def _sources(self) -> dict[str, Any]:
        """Return the objects that may determine the order: the data and its samplers, by name."""
        batch_sampler = getattr(self.data, "batch_sampler", None)
        return {
            "data": self.data,
            "sampler": getattr(self.data, "sampler", None),
            "batch_sampler": batch_sampler,
            "inner": getattr(batch_sampler, "sampler", None),
        }

    def _capture(self) -> dict[str, Any]:
        found: dict[str, Any] = {"random": random_states.capture(), "epochs": {}, "generators": {}}
        for name, source in self._sources().items():
            epoch, generator = getattr(source, "epoch", None), getattr(source, "generator", None)
            if isinstance(epoch, int):
                found["epochs"][name] = epoch
            if isinstance(generator, torch.Generator):
                found["generators"][name] = generator.get_state()
        return found

    def _set(self, begun: dict[str, Any]) -> None:
        sources = self._sources()
        for name, epoch in begun["epochs"].items():
            sources[name].epoch = epoch
        for name, state in begun["generators"].items():
            sources[name].generator.set_state(state)
        random_states.restore(begun["random"])

    def state_dict(self) -> dict[str, Any]:
        """Return the position: the pass, the batches used of it, and what it began from."""
        begun = self._begun
        return {
            "passes": self._passes,
            "batches": self._batches,
            # Between two passes, the next one goes on from the epochs and generators of now.
            "begun": begun,
            "between": None if begun is not None else self._capture(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position; the next pass goes on from it."""
        self._passes, self._batches = int(state["passes"]), int(state["batches"])
        self._begun, self._is_due = state["begun"], state["begun"] is not None
        if state["between"] is not None:
            now = random_states.capture()
            self._set(state["between"])
            random_states.restore(now)

    @property
    def passes(self) -> int:
        """The number of finished passes."""
        return self._passes
