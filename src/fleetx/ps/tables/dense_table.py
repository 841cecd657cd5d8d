"""A table of dense blocks: one server's slices of parameters, updated as in a program.

The update is a rule of `fleetx.kernels` or one of torch's optimizers, after clipping and penalties.
Blocks of a table may differ in settings, penalties and the factor of the learning rate, like the
parameters of a program. Every method holds the table's lock; an invalid push changes nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fleetx.kernels.gradients import penalised, square_norm
from fleetx.kernels.row_initializer import RowInitializer
from fleetx.ps.tables.rule_update import RuleUpdate, State, clipped
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import BlockSpec, DenseTableSpec, name_seed

Params = dict[str, Tensor]


class DenseTable:
    """Blocks and the state of their optimizer."""

    def __init__(self, spec: DenseTableSpec) -> None:
        self.spec = spec
        self.dtype: torch.dtype = getattr(torch, spec.dtype)
        self._lock = threading.RLock()
        self._blocks = {block.name: block for block in spec.blocks}
        self._params = {block.name: self._first_value(block) for block in spec.blocks}
        kind = _TorchUpdates if spec.optimizer.kind.startswith("torch.") else _RuleUpdates
        self._updates: _RuleUpdates | _TorchUpdates = kind(spec, self._params)

    def _first_value(self, block: BlockSpec) -> Tensor:
        # Seeded by the parameter's name, not the table's, so slices on other servers match.
        make = RowInitializer(
            block.initializer.kind,
            block.initializer.settings,
            seed=name_seed(block.parameter),
            dim=1,
            dtype=self.dtype,
        )
        places = torch.arange(block.start, block.start + block.size)
        return make(places).reshape(block.shape)

    # -- training ---------------------------------------------------------------------------------
    def pull(self, block: str, *, out: Tensor | None = None) -> Tensor:
        """Return a copy of a block; if `out` is given, fill and return it."""
        with self._lock:
            param = self._param(block)
            if out is None:
                return param.clone()
            self._check(block, out, "out")
            return out.copy_(param)

    def push(
        self, grads: Mapping[str, Tensor], *, rate: float | None = None, norm: float | None = None
    ) -> None:
        """Update blocks with their gradients.

        `rate` is the learning rate, the optimizer's own if None. `norm` is the norm of all
        gradients, needed for "global_norm" if some are on other servers or in other tables.
        """
        rate = self.spec.optimizer.rate if rate is None else float(rate)
        for block, grad in grads.items():
            self._check(block, grad, "gradients")
        with self._lock:
            self._updates(self._prepared(grads, norm), rate)

    def add(self, block: str, delta: Tensor) -> None:
        """Add to a block without the optimizer (geo mode)."""
        self._check(block, delta, "deltas")
        with self._lock:
            self._params[block].add_(delta)

    def assign(self, block: str, value: Tensor) -> None:
        """Set a block, for example to the initial value from a worker."""
        self._check(block, value, "values")
        with self._lock:
            self._params[block].copy_(value)

    def square_norm(self, grads: Mapping[str, Tensor]) -> float:
        """Return the sum of squares of the gradients that are clipped."""
        return square_norm([grad for name, grad in grads.items() if self._blocks[name].clipped])

    def _prepared(self, grads: Mapping[str, Tensor], norm: float | None) -> dict[str, Tensor]:
        """Return the gradients after clipping and penalties."""
        optimizer = self.spec.optimizer
        clip = optimizer.clip
        if clip is not None and clip.kind == "global_norm" and norm is None:
            norm = self.square_norm(grads) ** 0.5
        elif clip is not None and clip.kind == "norm":
            norm = None  # each parameter has its own, and is stored whole
        ready = {}
        for name, grad in grads.items():
            block = self._blocks[name]
            if block.clipped:
                grad = clipped(grad, clip, norm)
            l1 = optimizer.l1 if block.l1 is None else block.l1
            l2 = optimizer.l2 if block.l2 is None else block.l2
            ready[name] = penalised(grad, self._params[name], l1=l1, l2=l2)
        return ready

    def _param(self, block: str) -> Tensor:
        if block not in self._params:
            raise ValueError(f"table {self.spec.name!r} has no block {block!r}.")
        return self._params[block]

    def _check(self, block: str, value: Tensor, what: str) -> None:
        param = self._param(block)
        if value.shape != param.shape or value.dtype is not param.dtype:
            raise ValueError(
                f"block {block!r} needs {what} of shape {list(param.shape)} and type "
                f"{self.spec.dtype}, not {list(value.shape)} and {value.dtype}."
            )

    # -- everything -------------------------------------------------------------------------------
    @property
    def nbytes(self) -> int:
        """The memory of blocks and state, in bytes."""
        found = [*self._params.values()]
        for name in self._params:
            found += self._updates.state(name).values()
        return sum(tensor.numel() * tensor.element_size() for tensor in found)

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of all blocks and their state: `<block>/Param`, `<block>/<state>`."""
        with self._lock:
            found = {}
            for name, param in self._params.items():
                found[f"{name}/Param"] = param.clone()
                for slot, value in self._updates.state(name).items():
                    found[f"{name}/{slot}"] = value.clone()
            return found

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the table that `state_dict` returned; an invalid state changes nothing.

        Missing optimizer state is reset and unknown state is ignored: a saved parameter can be used
        with any optimizer.
        """
        parts = self._checked_parts(state)
        with self._lock:
            for name, part in parts.items():
                self._params[name].copy_(part.pop("Param"))
            self._updates.load(parts)

    def check_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Raise ValueError if this table cannot load a state."""
        self._checked_parts(state)

    def _checked_parts(self, state: Mapping[str, Tensor]) -> dict[str, State]:
        """Return a state that fits this table by block."""
        parts: dict[str, State] = {name: {} for name in self._params}
        for key, value in state.items():
            block, _, slot = key.rpartition("/")
            if block not in parts:
                raise ValueError(f"table {self.spec.name!r} has no block {block!r} to load.")
            parts[block][slot] = value
        for name, part in parts.items():
            if "Param" not in part:
                raise ValueError(f"the state of table {self.spec.name!r} lacks block {name!r}.")
            self._check(name, part["Param"], "values")
            self._updates.check(name, part)
        return parts


class _RuleUpdates:
    """Updates by rules: one rule per set of settings, in one call for all blocks that share it."""

    def __init__(self, spec: DenseTableSpec, params: Params) -> None:
        self._params = params
        self._blocks = {block.name: block for block in spec.blocks}
        self._update: dict[str, RuleUpdate] = {}
        made: dict[str, RuleUpdate] = {}
        for block in spec.blocks:
            settings = {**spec.optimizer.settings, **block.settings}
            key = json.dumps(settings, sort_keys=True)
            if key not in made:
                made[key] = RuleUpdate(spec.optimizer.kind, settings)
            self._update[block.name] = made[key]
        self._state = {n: self._update[n].first_state(param) for n, param in params.items()}

    def __call__(self, grads: Mapping[str, Tensor], rate: float) -> None:
        rates: dict[float, Tensor] = {}
        calls: dict[int, tuple[RuleUpdate, list[Any]]] = {}
        for name, grad in grads.items():
            param, update = self._params[name], self._update[name]
            own = rate * self._blocks[name].rate_scale
            values = {
                "Param": param,
                "Grad": grad,
                "LearningRate": rates.setdefault(own, torch.tensor([own], dtype=param.dtype)),
                **self._state[name],
            }
            calls.setdefault(id(update), (update, []))[1].append(update.arguments(values))
        for update, arguments in calls.values():
            update(arguments)

    def state(self, name: str) -> State:
        """Return the state of a block, not a copy."""
        return self._state[name]

    def check(self, name: str, state: State) -> None:
        """Reject state of the wrong shape."""
        for slot, value in self._state[name].items():
            found = state.get(slot)
            if found is not None and (found.shape != value.shape or found.dtype != value.dtype):
                raise ValueError(
                    f"state {slot!r} of block {name!r} has shape {list(found.shape)} and type "
                    f"{found.dtype}; needed are {list(value.shape)} and {value.dtype}."
                )

    def load(self, states: Mapping[str, State]) -> None:
        """Set the state of all blocks."""
        for name, state in states.items():
            first = self._update[name].first_state(self._params[name])
            for slot, value in self._state[name].items():
                value.copy_(state.get(slot, first[slot]))


class _TorchUpdates:
    """Updates by one of torch's optimizers, with a parameter group per block."""

    def __init__(self, spec: DenseTableSpec, params: Params) -> None:
        self._kind = spec.optimizer.kind.removeprefix("torch.")
        self._params = params
        self._scale = {block.name: block.rate_scale for block in spec.blocks}
        self._common = self._arguments(spec.optimizer.settings)
        self._settings = {
            block.name: self._arguments({**spec.optimizer.settings, **block.settings})
            for block in spec.blocks
        }
        self._optimizer = self._make(params)

    def _class(self) -> Any:
        return getattr(torch.optim, self._kind)

    def _arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        settings = dict(given)
        defaults = self._class()([torch.zeros(1)], lr=0.0).defaults
        # JSON has no tuples, and the rules use these names too.
        if "betas" in defaults:
            first, second = defaults["betas"]
            betas = (settings.pop("beta1", first), settings.pop("beta2", second))
            settings["betas"] = betas
        if not set(settings) <= set(defaults):
            wrong = ", ".join(sorted(set(settings) - set(defaults)))
            raise SpecError(f"optimizer torch.{self._kind} has no setting {wrong}.")
        return settings

    def _make(self, params: Params) -> Any:
        # Without blocks there is nothing to update, and torch rejects an empty list.
        groups = [
            {"params": [param], **self._settings[name]} for name, param in params.items()
        ] or [{"params": [torch.zeros(0)]}]
        return self._class()(groups, lr=0.0, **self._common)

    def __call__(self, grads: Mapping[str, Tensor], rate: float) -> None:
        blocks = zip(self._optimizer.param_groups, self._params.items(), strict=False)
        try:
            for group, (name, param) in blocks:
                group["lr"] = rate * self._scale[name]
                param.grad = grads.get(name)
            self._optimizer.step()
        finally:
            for param in self._params.values():
                param.grad = None

    def state(self, name: str) -> State:
        """Return the state of a block, not a copy."""
        found = self._optimizer.state.get(self._params[name], {})
        return {slot: value for slot, value in found.items() if isinstance(value, Tensor)}

    def check(self, name: str, state: State) -> None:
        """Reject state of the wrong shape: torch's is as large as the parameter, or a scalar."""
        shape = self._params[name].shape
        for slot, value in state.items():
            if value.shape != shape and value.numel() != 1:
                raise ValueError(
                    f"state {slot!r} of block {name!r} has shape {list(value.shape)}; the block "
                    f"has {list(shape)}."
                )

    def load(self, states: Mapping[str, State]) -> None:
        """Set the state of all blocks; state that this optimizer does not use is ignored."""
        self._optimizer = self._make(self._params)
        for name, state in states.items():
            known = self._state_names(name)
            if known and known <= set(state):
                kept = {slot: state[slot].clone() for slot in known}
                self._optimizer.state[self._params[name]] = kept

    def _state_names(self, name: str) -> set[str]:
        """Return the state names of a block, taken from a step on a scratch parameter."""
        scratch = torch.zeros(1)
        scratch.grad = torch.zeros(1)
        optimizer = self._class()([scratch], lr=0.0, **self._settings[name])
        optimizer.step()
        found = optimizer.state.get(scratch, {})
        return {slot for slot, value in found.items() if isinstance(value, Tensor)}
