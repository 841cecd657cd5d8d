"""A worker's position in the parallel degrees of a strategy, under the names of Paddle's class.

Scripts use it to shard the data: workers that divide layers, or stages of a pipeline, train on the
same samples, unless `joined_batches` lets each of them bring its own.
"""

from __future__ import annotations

from fleetx.comm.layout import Group, Layout


class HybridGroups:
    """Degrees, places and groups of this worker."""

    def __init__(self, layout: Layout, *, joins_batches: bool = False) -> None:
        """`joins_batches`: every worker brings samples of its own."""
        self._layout = layout
        self._joins_batches = joins_batches
        self._degrees = layout.degrees

    # -- the data -------------------------------------------------------------------------
    @property
    def data_index(self) -> int:
        """Which part of the data this worker trains on: copies and shards each have their own."""
        if self._joins_batches:
            return self._layout.rank
        place = self._layout.place
        return place["dp"] * self._degrees.sharding + place["sharding"]

    @property
    def data_num(self) -> int:
        """Into how many parts the data is divided."""
        if self._joins_batches:
            return max(1, self._degrees.workers)
        return max(1, self._degrees.dp * self._degrees.sharding)

    # -- copies ---------------------------------------------------------------------------
    def get_data_parallel_rank(self) -> int:
        """Return the copy that this worker belongs to."""
        return self._layout.place["dp"]

    def get_data_parallel_world_size(self) -> int:
        """Return the number of copies."""
        return self._degrees.dp

    def get_data_parallel_group(self) -> Group:
        """Return this worker's counterparts in all copies; all workers must call it together."""
        return self._layout.group("dp")

    # -- divided layers -------------------------------------------------------------------
    def get_model_parallel_rank(self) -> int:
        """Return which part of the layers this worker has."""
        return self._layout.place["mp"]

    def get_model_parallel_world_size(self) -> int:
        """Return how many workers divide a layer."""
        return self._degrees.mp

    def get_model_parallel_group(self) -> Group:
        """Return the workers that divide the same layers; all workers must call it together."""
        return self._layout.group("mp")

    # -- divided state --------------------------------------------------------------------
    def get_sharding_parallel_rank(self) -> int:
        """Return which part of the state this worker has."""
        return self._layout.place["sharding"]

    def get_sharding_parallel_world_size(self) -> int:
        """Return how many workers divide the state."""
        return self._degrees.sharding

    def get_sharding_parallel_group(self) -> Group:
        """Return the workers that divide the same state; all workers must call it together."""
        return self._layout.group("sharding")

    # -- stages ---------------------------------------------------------------------------
    def get_stage_id(self) -> int:
        """Return the stage of the pipeline that this worker computes."""
        return self._layout.place["pp"]

    def get_pipe_parallel_world_size(self) -> int:
        """Return the number of stages."""
        return self._degrees.pp
