"""The process group of a server job's workers, for communication among themselves.

Training needs none, since gradients go to servers; shuffling samples between workers and metrics
over all workers do. Workers rendezvous through the servers before each exchange, so that it works
with any role maker and a restarted worker can take part: if the group no longer contains all
workers, worker 0 opens a new store and publishes its address.
"""

from __future__ import annotations

import datetime
import logging
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from fleetx.comm.role_groups import GlooGroup
from fleetx.ps.client.client import Client
from fleetx.runtime import heartbeat, network

_log = logging.getLogger("fleetx.fleet")
_PATIENCE = datetime.timedelta(seconds=300)
Notes = dict[int, dict[str, Any]]
Result = TypeVar("Result")


class WorkerGroup:
    """All workers of a job with servers; all of them call its methods, in the same order."""

    def __init__(self, client: Client, server_endpoint: str) -> None:
        """Rendezvous through the servers; workers listen on the interface towards that server."""
        self._client = client
        server, _ = network.split_endpoint(server_endpoint)
        self._host = network.address_towards(server) or network.resolve(server) or "127.0.0.1"
        self._group: GlooGroup | None = None
        self._meeting = ""

    def all_reduce(self, tensor: Tensor, mode: str) -> Tensor:
        """Return the tensors of all workers reduced."""
        return self._do("all_reduce", lambda group: group.all_reduce(tensor, mode))

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all workers."""
        return self._do("all_gather", lambda group: group.all_gather(tensor))

    def all_to_all(self, parts: list[Tensor], sizes: list[int]) -> list[Tensor]:
        """Send one part to each worker; return the received parts, of the given lengths."""
        return self._do("exchange", lambda group: group.all_to_all(parts, sizes))

    def barrier(self) -> None:
        """Wait until all workers have reached this point."""
        with heartbeat.collective(heartbeat.BARRIER):
            self._do("barrier", lambda group: group.barrier())

    def _do(self, name: str, action: Callable[[GlooGroup], Result]) -> Result:
        failed: tuple[list[int], RuntimeError] | None = None
        while True:
            notes = self._gather(
                {"action": name, "life": self._client.life, "meeting": self._meeting}
            )
            self._check(name, notes)
            lives = [notes[worker]["life"] for worker in sorted(notes)]
            if failed is not None and failed[0] == lives:
                raise failed[1]  # no worker was restarted, so a missing worker is not the cause
            if self._group is None or any(n["meeting"] != self._meeting for n in notes.values()):
                self._meet()
            assert self._group is not None
            try:
                return action(self._group)
            except RuntimeError as error:
                _log.warning("An exchange between workers (%s) failed: %s", name, error)
                failed = lives, error
                self.close()

    def close(self) -> None:
        """Close the connections to the other workers; the next exchange opens new ones."""
        if self._group is not None:
            self._group.close()
        self._group, self._meeting = None, ""

    def _gather(self, note: dict[str, Any]) -> Notes:
        notes = self._client.gather(note)
        if len(notes) < self._client.workers:
            gone = next(n for n in range(self._client.workers) if n not in notes)
            raise RuntimeError(f"worker {gone} has finished and takes part in no more exchanges.")
        return notes

    def _check(self, name: str, notes: Notes) -> None:
        for worker, note in sorted(notes.items()):
            if note.get("action") != name:
                raise RuntimeError(
                    f"worker {self._client.worker} called {name!r}, but worker {worker} called "
                    f"{note.get('action') or 'a barrier'!r}: all workers must make the same "
                    "exchanges in the same order. A restarted worker begins its script anew and "
                    "must leave out those that the others have already made."
                )

    def _meet(self) -> None:
        self.close()
        note: dict[str, Any] = {}
        store = None
        if self._client.worker == 0:
            store = dist.TCPStore(
                self._host, 0, is_master=True, timeout=_PATIENCE, wait_for_workers=False
            )
            note = {"address": [self._host, store.port], "meeting": secrets.token_hex(8)}
        found = self._gather({"worker": self._client.worker, **note})[0]
        if store is None:
            host, port = found["address"]
            store = dist.TCPStore(host, port, is_master=False, timeout=_PATIENCE)
        self._meeting = found["meeting"]
        self._group = GlooGroup(store, self._client.worker, self._client.workers, self._host)
