"""Synchronous training: one update per step, with the mean of all workers' gradients.

Gradients are sent to the servers as they are pushed. When all servers have all of this worker's, a
"commit" notifies each of them; the step is applied when all workers have committed, and the next
pull waits for that. `fleetx.ps.server.sync_steps` explains why no kill in between changes a bit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from torch import Tensor

from fleetx.ps.client.client import Pending
from fleetx.ps.modes.mode import Batch, Mode
from fleetx.ps.server.table_requests import clips_by_global_norm
from fleetx.ps.wire.messages import Flag, Kind


class SyncMode(Mode):
    """Training in which every step waits for all workers."""

    keeps_step = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._sent: list[Pending[None]] = []
        self._commits: list[Future[Any]] = []
        self._clips = any(clips_by_global_norm(spec) for spec in self._sparse.values()) or any(
            clips_by_global_norm(spec) for specs in self._dense.values() for spec in specs
        )
        self._without_norm: int | None = None

    @property
    def _needs_norm(self) -> bool:
        return self._clips and self.client.servers > 1

    def stop_for_move(self) -> None:
        """Wait until the last step has been applied on all servers."""
        self._wait_for_commits()
        self._agree_on_norm()
        self._without_norm = None
        self.client.wait_for_step(self.step)

    def _first_step(self) -> int:
        welcomes = self.client.welcomes()
        versions = [welcome["version"] for welcome in welcomes]
        step = min(versions)
        # A commit on any server means that all servers have this worker's gradients of that step.
        if max(versions) > step or any(
            welcome["committed"] for welcome in welcomes if welcome["version"] == step
        ):
            self._commits = self.client.start_commit(step)
            self._wait_for_commits()
            step += 1
            self._without_norm = step - 1
        return step

    def _agree_on_norm(self) -> None:
        # Done by every worker, since any of the others may be gone.
        if self._needs_norm and self._without_norm is not None:
            self.client.agree_on_norm(self._without_norm)
            self._without_norm = None

    def pull_dense(self) -> None:
        """Fetch the parameters after the last step, once it has been applied."""
        self._agree_on_norm()
        self._fetch(step=self.step)
        self._wait_for_commits()

    def start_pull_sparse(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to fetch rows after the last step, once it has been applied."""
        self._agree_on_norm()
        return self.client.start_pull_sparse(table, ids, step=self.step)

    @property
    def can_pull_ahead(self) -> bool:  # type: ignore[override]
        """Whether rows can be prefetched: not if workers must first agree on a norm, which a worker
        that waits for rows would not do."""
        return not self._needs_norm

    def start_pull_ahead(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to fetch rows as of the end of this step; servers reply once it is applied."""
        return self.client.start_pull_sparse(table, ids, step=self.step + 1)

    def push_dense(self, gradients: Mapping[str, Tensor], *, rate: float | None = None) -> None:
        """Start to send gradients, which must not change until `step_end` has returned."""
        for table, blocks in self._gradients(gradients):
            self._sent.append(
                self.client.start_dense(
                    Kind.PUSH, table, blocks, step=self.step, rate=rate, flags=Flag.SYNC
                )
            )

    def step_end(self) -> None:
        """Return when all servers have this worker's gradients, even if not yet applied."""
        for table in self._batch.sparse:  # those of a step are sent together
            ids, rows = self._batch.rows(table)
            self._sent.append(
                self.client.start_sparse(
                    Kind.PUSH,
                    table,
                    ids,
                    rows,
                    step=self.step,
                    rate=self._batch.rates[table],
                    flags=Flag.SYNC,
                )
            )
        for pending in self._sent:
            pending.wait()
        self._sent, self._batch = [], Batch()
        self._wait_for_commits()
        self._commits = self.client.start_commit(self.step)
        self._without_norm = self.step
        self.step += 1
        self._at_boundary()

    def _wait_for_commits(self) -> None:
        for future in self._commits:
            future.result()
        self._commits = []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the tables as they are before this step, which is the same on all servers."""
        self._agree_on_norm()
        self.client.save(path, step=self.step)

    def stop(self) -> None:
        """Wait for the last step and disconnect."""
        self._wait_for_commits()
        self._agree_on_norm()
        self.client.finish()
