"""Whole parameters with an owner each: gradients go to the owner, which updates and sends back.

Owners are chosen by size, so that all workers hold about equally much optimizer state. Messages are
buckets of parameters of one owner. A gradient travels straight to its owner: the workers together
send as much as in a reduce-scatter, of which Gloo has none that is better than an all-reduce.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from fleetx import torch_private
from fleetx.comm.buckets import FIRST_MB, growing_limits
from fleetx.comm.divided_tensors import is_elsewhere
from fleetx.comm.layout import Group
from fleetx.runtime import heartbeat
from fleetx.step.gradient_sync import flat_gradients
from fleetx.step.stages import GradientSync, Parameters, ParameterSync, Update
from fleetx.techniques.divided_update import without_gradients
from fleetx.techniques.sharding_state import gather_state, part_of_state

_UNDER_WAY = 2
"""Buckets that may be under way at a time; more would need the memory that sharding saves."""
_IS_MEAN = "_fleetx_mean"  # on gradients that are means over all workers already: their version


def choose_owners(sizes: Iterable[int], loads: list[int]) -> list[int]:
    """Return an owner for each size: the largest first, each to the worker with the least so far.

    `loads` is what each worker owns already, and is changed.
    """
    given = list(sizes)
    owners = [0] * len(given)
    for place in sorted(range(len(given)), key=lambda i: (-given[i], i)):
        owners[place] = min(range(len(loads)), key=lambda rank: (loads[rank], rank))
        loads[owners[place]] += given[place]
    return owners


class Owners:
    """Which worker owns which parameter."""

    def __init__(self, group: Group) -> None:
        """`group` has the workers that divide one copy of the model."""
        self.group = group
        self.rank = group.rank
        self.workers = group.size
        self._loads = [0] * group.size
        self._owners: dict[str, int] = {}

    def take(self, parameters: Parameters) -> None:
        """Choose owners for the trained parameters that have none yet, among those of this
        group."""
        new = {
            name: p
            for name, p in parameters.items()
            if p.requires_grad and name not in self._owners and not is_elsewhere(p)
        }
        sizes = [p.numel() * p.element_size() for p in new.values()]
        self._owners.update(zip(new, choose_owners(sizes, self._loads), strict=True))

    def of(self, name: str) -> int | None:
        """Return the owner of a parameter; None if it is not trained."""
        return self._owners.get(name)

    def owns(self, name: str) -> bool:
        """Return whether this worker updates a parameter."""
        return self._owners.get(name) == self.rank

    def own(self, tensors: Parameters) -> dict[str, Tensor]:
        """Return the parameters that this worker updates, and those without an owner."""
        return {n: t for n, t in tensors.items() if self._owners.get(n, self.rank) == self.rank}

    def message(self, send: Any, tensor: Tensor, place: int) -> Any:
        """Return a message to or from another worker of the group."""
        return dist.P2POp(send, tensor, self.group.ranks[place], self.group.process_group)


@dataclass
class Bucket:
    """Parameters of one owner that travel together."""

    owner: int
    members: dict[str, Tensor]


def make_buckets(parameters: Parameters, owners: Owners, limit_mb: float) -> list[Bucket]:
    """Divide the trained parameters into buckets, in the order in which backward reaches them."""
    limits = [mb * 2**20 for mb in growing_limits(min(FIRST_MB, limit_mb), limit_mb)]
    buckets: list[Bucket] = []
    waiting: dict[Any, Bucket] = {}
    for name, parameter in reversed(list(parameters.items())):
        owner = owners.of(name)
        if owner is None:
            continue
        key = owner, parameter.dtype, parameter.device
        bucket = waiting.setdefault(key, Bucket(owner, {}))
        bucket.members[name] = parameter
        size = sum(p.numel() * p.element_size() for p in bucket.members.values())
        if size >= limits[min(len(buckets) // owners.workers, len(limits) - 1)]:
            buckets.append(waiting.pop(key))
    return [*buckets, *waiting.values()]


class _Flight:
    """A bucket of gradients on its way to the owner."""

    def __init__(self, bucket: Bucket, owners: Owners, dtype: torch.dtype | None) -> None:
        self.bucket = bucket
        members = list(bucket.members.values())
        self.flat = flat_gradients(members)
        for parameter in members:
            parameter.grad = None
        self._received: list[Tensor] = []
        if bucket.owner == owners.rank:
            like = self.flat if dtype is None else self.flat.new_empty(0, dtype=dtype)
            places = [place for place in range(owners.workers) if place != owners.rank]
            self._received = [like.new_empty(self.flat.shape) for _ in places]
            pairs = zip(self._received, places, strict=True)
            messages = [owners.message(dist.irecv, tensor, place) for tensor, place in pairs]
        else:
            self.flat = self.flat if dtype is None else self.flat.to(dtype)
            messages = [owners.message(dist.isend, self.flat, bucket.owner)]
        self._works = dist.batch_isend_irecv(messages)

    def wait(self) -> None:
        """Wait for the messages; the owner then has the sum in `flat`."""
        with heartbeat.collective("gradients to their owners"):
            for work in self._works:
                work.wait()
        for tensor in self._received:
            self.flat.add_(tensor)
        self._received = []


class ReducedToOwners(GradientSync):
    """Every gradient becomes the mean over all workers at its owner, and is gone elsewhere.

    Buckets leave while backward runs, in an order that is the same on all workers; at the end of
    each backward pass all have left, so that passes may be accumulated.
    """

    during_backward = False
    keeps_no_state = divides = True

    def __init__(
        self,
        owners: Owners,
        *,
        limit_mb: float,
        dtype: torch.dtype | None,
        scale: Callable[[], float],
        is_outermost: Callable[[GradientSync], bool],
    ) -> None:
        """`dtype` is the half precision that messages travel in, None for the gradients' own type,
        `scale` returns what they are multiplied by in it; `is_outermost` tells whether nothing
        collects gradients in front."""
        self._owners = owners
        self._limit_mb = limit_mb
        self._dtype = dtype
        self._scale = scale
        self._is_outermost = is_outermost
        self._buckets: list[Bucket] = []
        self._hooks: list[Any] = []
        self._missing: list[int] = []  # gradients that each bucket still waits for
        self._next = 0  # the bucket to leave next
        self._is_running = False
        self._passes = 0  # since the last exchange
        self._flights: list[_Flight] = []
        self._earlier: dict[str, Tensor] = {}  # means of earlier passes
        self._has_warned = False

    def watch(self, parameters: Parameters) -> None:
        """Prepare for these parameters, whose owners are known."""
        self._buckets = make_buckets(parameters, self._owners, self._limit_mb)
        for handle in self._hooks:
            handle.remove()
        self._hooks = []
        if not self._is_outermost(self):
            return
        for number, bucket in enumerate(self._buckets):
            for name, p in bucket.members.items():
                self._hooks.append(
                    p.register_post_accumulate_grad_hook(partial(self._note, number))
                )
                if self._owners.owns(name):
                    self._hooks.append(p.register_hook(partial(self._set_aside, name, p)))

    def _set_aside(self, name: str, parameter: Tensor, _: Tensor) -> None:
        """Keep the mean of an earlier pass from being exchanged again with what is added to it."""
        grad = parameter.grad
        if grad is not None and hasattr(grad, _IS_MEAN):
            earlier = self._earlier.get(name)
            self._earlier[name] = grad if earlier is None else earlier.add_(grad)
            parameter.grad = None

    def _note(self, number: int, _: Tensor) -> None:
        if not self._is_running:
            self._begin()
            torch_private.execution_engine.queue_callback(self._finish)
        self._missing[number] -= 1
        while self._next < len(self._buckets) and self._missing[self._next] <= 0:
            self._send_next()

    def _begin(self) -> None:
        self._is_running = True
        self._missing = [len(bucket.members) for bucket in self._buckets]
        self._next = 0

    @torch.no_grad()
    def _send_next(self) -> None:
        bucket = self._buckets[self._next]
        self._next += 1
        for name, p in bucket.members.items():
            self._set_aside(name, p, p)
        scale = 1.0 if self._dtype is None else self._scale()
        if scale != 1.0:
            for p in bucket.members.values():
                if p.grad is not None:
                    p.grad.mul_(scale)
        self._flights.append(_Flight(bucket, self._owners, self._dtype))
        while len(self._flights) > _UNDER_WAY:
            self._land(self._flights.pop(0), scale)

    @torch.no_grad()
    def _finish(self) -> None:
        """Send what is left of this backward pass, and wait until all has arrived."""
        while self._next < len(self._buckets):
            self._send_next()
        scale = 1.0 if self._dtype is None else self._scale()
        for flight in self._flights:
            self._land(flight, scale)
        self._flights = []
        self._is_running = False
        self._passes += 1

    def _land(self, flight: _Flight, scale: float) -> None:
        flight.wait()
        if flight.bucket.owner != self._owners.rank:
            return
        members = flight.bucket.members
        *sums, marks = flight.flat.split([*(p.numel() for p in members.values()), len(members)])
        for (name, p), total, mark in zip(members.items(), sums, marks.tolist(), strict=True):
            mean = total.view(p.shape).div_(self._owners.workers * scale) if mark > 0 else None
            earlier = self._earlier.pop(name, None)
            if mean is not None and earlier is not None:
                mean.add_(earlier)
            p.grad = earlier if mean is None else mean
        for p in members.values() if self._hooks else ():  # they share memory and version
            if p.grad is not None:
                setattr(p.grad, _IS_MEAN, torch_private.version_of(p.grad))

    def exchange(self, parameters: Parameters) -> None:
        """Exchange what no backward pass has exchanged."""
        if self._is_running or not self._passes:
            if not self._is_running:
                self._begin()
            self._finish()
        elif not self._has_warned:
            self._warn_if_changed()
        self._passes = 0

    def _warn_if_changed(self) -> None:
        """Warn once if the script has changed gradients between backward and step."""
        found = (p.grad for bucket in self._buckets for p in bucket.members.values())
        versions = ((g, getattr(g, _IS_MEAN, None)) for g in found if g is not None)
        if any(was is not None and torch_private.version_of(g) != was for g, was in versions):
            self._has_warned = True
            warnings.warn(
                "the script changes gradients between backward() and step(), but with sharding in "
                "stage 2 it sees those of one worker's parameters only: a clip such as "
                "clip_grad_norm_ then has another norm on every worker. Take it out and set "
                "strategy.gradient_clip = True and strategy.gradient_clip_configs = "
                "{'norm': ...}.",
                stacklevel=6,
            )


class OwnersUpdate(Update):
    """The optimizer updates the parameters that this worker owns, and has state for no others."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._others: list[Tensor] = []
        self._frozen: Parameters = {}

    def watch(self, optimizer: Optimizer, parameters: Parameters) -> None:
        """Prepare for these parameters; drop state that was loaded for those of other workers."""
        self._others = [p for name, p in parameters.items() if not self._owners.owns(name)]
        self._frozen = {n: p for n, p in parameters.items() if self._owners.of(n) is None}
        for parameter in self._others:
            optimizer.state.pop(parameter, None)

    def apply(self, optimizer: Optimizer) -> None:
        """Update the parameters of this worker."""
        for name, parameter in self._frozen.items():
            if parameter.grad is not None:
                raise RuntimeError(
                    f"parameter {name!r} did not require gradients when sharding gave every "
                    "parameter an owner, so that no worker updates it: call requires_grad_(True) "
                    "before fleet.distributed_model."
                )
        with without_gradients(self._others):
            optimizer.step()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state of all workers as one; all must call it."""
        return gather_state(optimizer.state_dict(), self._owners.group)

    def load_optimizer_state(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Load the part of a whole state that this worker owns."""
        optimizer.load_state_dict(part_of_state(optimizer, state, without=self._others))


class SentByOwners(ParameterSync):
    """Owners send the parameters that they have updated; worker 0 sends statistics."""

    def __init__(self, owners: Owners, *, limit_mb: float, sends_buffers: bool) -> None:
        self._owners = owners
        self._limit_mb = limit_mb
        self._sends_buffers = sends_buffers
        self._buckets: list[Bucket] = []

    def watch(self, parameters: Parameters) -> None:
        """Prepare for these parameters, whose owners are known."""
        self._buckets = make_buckets(parameters, self._owners, self._limit_mb)

    @torch.no_grad()
    def after_update(self, parameters: Parameters, loss: Tensor | None) -> None:
        """Send parameters from their owners to all workers."""
        buckets = list(self._buckets)
        if self._sends_buffers:
            buckets += _buffer_buckets(parameters)
        under_way: list[tuple[Any, Tensor, Bucket]] = []
        for bucket in reversed(buckets):  # as forward needs them
            under_way.append(self._start(bucket))
            if len(under_way) > _UNDER_WAY:
                self._end(*under_way.pop(0))
        for each in under_way:
            self._end(*each)

    def _start(self, bucket: Bucket) -> tuple[Any, Tensor, Bucket]:
        tensors = [t.detach() for t in bucket.members.values()]
        if len(tensors) == 1 and tensors[0].is_contiguous():
            flat = tensors[0].view(-1)
        elif bucket.owner == self._owners.rank:
            flat = torch.cat([t.reshape(-1) for t in tensors])
        else:
            flat = tensors[0].new_empty(sum(t.numel() for t in tensors))
        group = self._owners.group
        source = group.ranks[bucket.owner]
        return dist.broadcast(flat, source, group.process_group, async_op=True), flat, bucket

    def _end(self, work: Any, flat: Tensor, bucket: Bucket) -> None:
        with heartbeat.collective("parameters from their owners"):
            work.wait()
        tensors = list(bucket.members.values())
        is_one = len(tensors) == 1 and tensors[0].is_contiguous()
        if bucket.owner != self._owners.rank and not is_one:
            parts = flat.split([t.numel() for t in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))


def _buffer_buckets(tensors: Parameters) -> list[Bucket]:
    """Return buckets of what is no parameter."""
    found: dict[Any, Bucket] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.nn.Parameter):
            key = tensor.dtype, tensor.device
            found.setdefault(key, Bucket(0, {})).members[name] = tensor
    return list(found.values())
