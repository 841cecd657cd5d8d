"""All-reduce of the gradients of a backward call while the call is still running.

Each leaf has a hook that copies its gradient into a flat bucket; the all-reduce of a full bucket
starts immediately and overlaps with the rest of the backward pass. The backward call returns views
of the buckets, so nothing is copied back. Sparse gradients are exchanged as rows after the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fleetx.comm.buckets import Bucket, make_buckets
from fleetx.comm.gradient_all_reduce import GradientExchange, Handle
from fleetx.comm.row_all_reduce import all_reduce_rows
from fleetx.runtime import heartbeat
from fleetx.static.lowering.row_ops import as_rows
from fleetx.static.lowering.step_functions import differentiate


class GradientReducer:
    """A backward call whose results are sums over all workers.

    `order` lists the positions of the leaves in the order in which their gradients become ready,
    `rows` those of the leaves with sparse gradients.
    """

    def __init__(
        self, exchange: GradientExchange, order: list[int], rows: Sequence[int] = ()
    ) -> None:
        self._exchange = exchange
        self._order = order
        self._rows = tuple(rows)
        self._leaves: list[torch.Tensor] = []
        self._hooks: list[Any] = []
        self._buckets: list[Bucket] = []
        self._flat: list[torch.Tensor] = []
        self._views: dict[int, tuple[int, torch.Tensor]] = {}  # leaf -> bucket, its part of it
        self._missing: list[int] = []
        self._handles: list[Handle] = []

    @property
    def bucket_count(self) -> int:
        """The number of all-reduces per step; known after the first step."""
        return len(self._buckets)

    def run(
        self,
        roots: tuple[torch.Tensor, ...],
        leaves: tuple[torch.Tensor, ...],
        seeds: tuple[torch.Tensor, ...],
        retain_graph: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        """Differentiate and reduce; the arguments are those of `differentiate`."""
        if len(leaves) != len(self._leaves) or any(
            a is not b for a, b in zip(leaves, self._leaves, strict=True)
        ):
            self._attach(leaves)
        # Allocated in every step: the gradients of the last step may still be in use.
        self._allocate()
        self._missing = [len(bucket.members) for bucket in self._buckets]
        self._handles.clear()
        grads = list(differentiate(roots, leaves, seeds, retain_graph, self._rows))
        self._finish(grads)
        dtype = self._exchange.all_reduce.settings.dtype
        for place in self._rows:
            grads[place] = all_reduce_rows(as_rows(grads[place]), dtype=dtype)
        return tuple(grads)

    def _attach(self, leaves: tuple[torch.Tensor, ...]) -> None:
        for hook in self._hooks:
            hook.remove()
        self._leaves = list(leaves)
        ordered = [leaves[i] for i in self._order]
        self._buckets = [
            Bucket(tuple(self._order[m] for m in b.members), b.dtype, b.elements)
            for b in make_buckets(
                ordered,
                limit_mb=self._exchange.limit_mb,
                last_mb=self._exchange.last_mb,
                limit_count=self._exchange.limit_count,
            )
        ]
        self._exchange.announce(len(leaves), len(self._buckets))
        self._hooks = [leaves[i].register_hook(self._hook(i)) for i in self._order]

    def _allocate(self) -> None:
        self._flat = []
        self._views = {}
        for number, bucket in enumerate(self._buckets):
            device = self._leaves[bucket.members[0]].device
            flat = torch.empty(bucket.elements, dtype=bucket.dtype, device=device)
            leaves = [self._leaves[member] for member in bucket.members]
            parts = flat.split([leaf.numel() for leaf in leaves])
            for member, leaf, part in zip(bucket.members, leaves, parts, strict=True):
                self._views[member] = number, part.view(leaf.shape)
            self._flat.append(flat)

    def _hook(self, leaf: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def ready(grad: torch.Tensor) -> torch.Tensor:
            number, view = self._views[leaf]
            return self._fill(number, view, grad)

        return ready

    def _fill(self, number: int, view: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        view.copy_(grad.to_dense() if grad.is_sparse else grad)
        self._missing[number] -= 1
        if not self._missing[number]:
            self._handles.append(self._exchange.all_reduce.start(self._flat[number]))
        return view

    def _finish(self, grads: list[torch.Tensor]) -> None:
        """Send gradients without a hook call (zero on this worker), then wait for all buckets."""
        for member, (number, view) in self._views.items():
            if grads[member].data_ptr() != view.data_ptr():
                grads[member] = self._fill(number, view, grads[member])
        with heartbeat.collective("gradient all-reduce"):
            for handle in self._handles:
                handle.wait()
        heartbeat.beat()
