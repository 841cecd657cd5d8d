"""PipelineOptimizer: programs that are cut into sections, run in one process.

The sections of a micro-batch run in sequence, so cutting does not change the results; several
micro-batches per update are gradient accumulation. A run of the program is one micro-batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from fleetx.static.errors import ArgumentError
from fleetx.static.optimizer.gradient_merge_optimizer import GradientMergeOptimizer
from fleetx.static.optimizer.wrapped_optimizer import WrappedOptimizer


class PipelineOptimizer(WrappedOptimizer):
    """An optimizer that updates with the mean gradient of `num_microbatches` runs.

    As in Paddle 2.0 the second argument may be `num_microbatches`; as in 1.8 it may be `cut_list`,
    with the places, queues and threads of the sections, which have no effect on the results.
    """

    type = "pipeline"

    def __init__(
        self,
        optimizer: Any,
        cut_list: Sequence[Any] | int | None = None,
        place_list: Sequence[Any] | None = None,
        concurrency_list: Sequence[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
        num_microbatches: int = 1,
    ) -> None:
        if isinstance(cut_list, int):
            num_microbatches, cut_list = cut_list, None
        if num_microbatches < 1:
            raise ArgumentError(
                "num_microbatches of PipelineOptimizer must be at least 1, not "
                f"{num_microbatches!r}."
            )
        places = len({repr(place) for place in place_list or ()})
        if places > 1:
            warnings.warn(
                f"place_list of PipelineOptimizer names {places} places, but all sections run in "
                "this process, one after another: the results are the same, but memory is not "
                "distributed.",
                stacklevel=2,
            )
        inner = optimizer
        if num_microbatches > 1:
            inner = GradientMergeOptimizer(optimizer, num_microbatches)
        super().__init__(inner)
