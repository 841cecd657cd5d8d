"""What sharding holds, sends and saves on a worker: its rows of `fleet.explain()`."""

from __future__ import annotations

from math import prod

from fleetx.step.degrees import micro_batches
from fleetx.step.stages import Stage
from fleetx.step.technique import Job, Row, Sizes, ring_bytes
from fleetx.step.text_table import size
from fleetx.techniques.sharding_owners import choose_owners

_HOW = {1: "all-reduce", 2: "to their owners", 3: "reduce-scatter"}


class ShardingCosts:
    """The costs of a stage of sharding in a job."""

    def __init__(
        self, job: Job, sizes: Sizes, stage: int, block_elements: int, *, averages_copies: bool
    ) -> None:
        """`block_elements` are gathered again for backward in stage 3, by a pipeline for every
        micro-batch: what one backward pass leaves, the next forward pass uses. `averages_copies`:
        gradients are averaged over all copies of the model; otherwise another technique acts
        between them."""
        self._job = job
        self._sizes = sizes
        self._stage = stage
        self._block_bytes = block_elements * sizes.element_bytes
        self._copies = job.copies if averages_copies else 1
        self._workers = job.layout.degrees.sharding
        self._whole = sizes.parameter_bytes
        self._own = self._own_bytes()

    def rows(self, name: str, copies: int) -> list[Row]:
        """Return the rows, for an optimizer with so many tensors of state per parameter."""
        held = f"{size(self._own * copies)} of optimizer state"
        update = Row(
            stage=Stage.UPDATE,
            technique=name,
            settings=held if copies else "optimizer state of a part",
            memory=float(self._own - self._whole) * copies,
        )
        return [*self._gradient_rows(name), update, self._parameter_row(name)]

    def _gradient_rows(self, name: str) -> list[Row]:
        stage, kept = self._stage, self._whole if self._stage == 1 else self._own
        how = _HOW[stage]
        if self._job.copies > 1:
            how += f" in groups of {self._workers}"
        inside = Row(
            stage=Stage.GRAD_SYNC,
            technique=name,
            settings=f"stage {stage}, {how}, {size(kept)} of gradients",
            bytes_sent=self._gradients_sent(),
            memory=float(kept - self._whole),
            axes=("dp", "sharding") if stage == 1 else ("sharding",),
        )
        if stage == 1 or self._copies == 1:
            return [inside]
        between = Row(
            stage=Stage.GRAD_SYNC,
            technique=name,
            settings=f"all-reduce between {self._copies} copies",
            bytes_sent=ring_bytes(self._own, self._copies),
        )
        return [inside, between]

    def _gradients_sent(self) -> float:
        if self._stage == 1:
            return ring_bytes(self._whole, self._workers * self._copies)
        # Gloo's reduce-scatter is an all-reduce inside.
        is_half = self._stage == 2 or self._sizes.device != "cpu"
        return ring_bytes(self._whole, self._workers) / (2 if is_half else 1)

    def _parameter_row(self, name: str) -> Row:
        text, travels, kept = "from their owners", self._whole, self._whole
        if self._stage == 3:
            text, kept = "gathered block by block", self._own
            pp = self._job.layout.degrees.pp
            travels += self._block_bytes * micro_batches(self._job.strategy, pp)
        # Only gradients travel in half precision; `fp16_allreduce` halves what all rows send.
        share = 1.0 if self._job.all_reduce.dtype is None else 0.5
        return Row(
            stage=Stage.PARAM_SYNC,
            technique=name,
            settings=f"{text}, {size(kept)} of parameters",
            bytes_sent=ring_bytes(travels, self._workers) / 2 / share,
            memory=float(kept - self._whole),
            axes=("sharding",),
        )

    def _own_bytes(self) -> int:
        """Return the bytes of this worker's part of the trained parameters."""
        sizes, rank = self._sizes, self._job.layout.place["sharding"]
        if self._stage == 3:
            elements = [prod(s[1:]) * _own_rows(s[0], rank, self._workers) for s in sizes.shapes]
            return sum(elements) * sizes.element_bytes
        given = [n * sizes.element_bytes for n in sizes.elements]
        owners = choose_owners(given, [0] * self._workers)
        return sum(n for n, owner in zip(given, owners, strict=True) if owner == rank)


def _own_rows(rows: int, rank: int, workers: int) -> int:
    """Return how many of the rows of a parameter a worker has, if all but the last have equally
    many."""
    each = -(-rows // workers)
    return max(0, min(each, rows - rank * each))
