"""Contestants that are groups of workers, on this machine or in network namespaces."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field

from contest import Contestant, free_ports
from namespaces import Machines


@dataclass
class GroupContestant(Contestant):
    """A group of workers; all receive the commands, and rank 0 reports for them."""

    workers: int = 2
    machines: Machines | None = None
    """The machines they run on, in blocks of consecutive ranks; None for this machine."""
    sent: list[int] = field(default_factory=list)
    """Bytes that left machine 0 in each window."""

    def start(self) -> None:
        """Start all workers and wait until rank 0 reports that they are ready."""
        ports = free_ports(self.workers + 1)
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes = [
            self.popen(self._command(rank), self._place(rank, ports), **(silent if rank else {}))
            for rank in range(self.workers)
        ]
        self.process = self.processes[0]
        try:
            self.facts = json.loads(self._line())
        except BaseException:
            # The others would wait for the missing one.
            for process in self.processes:
                process.kill()
                process.wait()
            raise

    def _machine(self, rank: int) -> int:
        return rank * len(self.machines.addresses) // self.workers if self.machines else 0

    def _command(self, rank: int) -> list[str]:
        command = self.command()
        return self.machines.command(self._machine(rank), command) if self.machines else command

    def _place(self, rank: int, ports: list[int]) -> dict[str, str]:
        host = self.machines.addresses[0] if self.machines else "127.0.0.1"
        result = self.environment()
        if self.machines:
            result.update(self.machines.environment(self._machine(rank)))
        if self.ours:
            local = self.workers // (len(self.machines.addresses) if self.machines else 1)
            result["RANK"], result["WORLD_SIZE"] = str(rank), str(self.workers)
            result["LOCAL_RANK"], result["LOCAL_WORLD_SIZE"] = str(rank % local), str(local)
            result["MASTER_ADDR"], result["MASTER_PORT"] = host, str(ports[-1])
        else:
            endpoints = [f"{host}:{port}" for port in ports[:-1]]
            result["PADDLE_TRAINER_ID"] = str(rank)
            result["PADDLE_TRAINERS_NUM"] = str(self.workers)
            result["PADDLE_CURRENT_ENDPOINT"] = endpoints[rank]
            result["PADDLE_TRAINER_ENDPOINTS"] = ",".join(endpoints)
            result["GLOO_ENDPOINT"] = f"{host}:{ports[-1]}"
        return result

    def window(self, steps: int) -> None:
        """Run some steps on all workers; record the rate and the bytes between machines."""
        before = self.machines.sent(0) if self.machines else 0
        for process in self.processes[1:]:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        super().window(steps)
        if self.machines:
            self.sent.append((self.machines.sent(0) - before) // steps)

    def stop(self) -> None:
        """Stop the group; kill a worker that hangs because another one is gone."""
        for process in self.processes[1:]:
            process.stdin.close()
        super().stop()
        for process in self.processes[1:]:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
