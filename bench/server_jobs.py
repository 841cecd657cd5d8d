"""Contestants that are jobs of parameter servers and workers on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contest import Contestant, free_ports
from namespaces import Machines

BATCH = 512
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class ServerContestant(Contestant):
    """Servers and workers with plain PADDLE_* variables; all workers run the steps of a window."""

    servers: int = 2
    workers: int = 2
    machines: Machines | None = None
    """The machines, servers on the first and workers on the second; None for this machine."""
    processes: list[Any] = field(default_factory=list)
    seconds_of_cpu: list[float] = field(default_factory=list)
    """The CPU time of all processes per thousand samples, by window."""

    def start(self) -> None:
        """Start all processes and wait until the workers are ready."""
        self.processes = []
        ports = free_ports(self.servers + self.workers)
        for number, place in enumerate(self._places(ports)):
            self.processes.append(self._process(place, int(number >= self.servers)))
        try:
            for process in self.processes[self.servers :]:
                self.process = process
                self.facts = json.loads(self._line())
        except BaseException:
            self._kill()
            raise

    def _places(self, ports: list[int]) -> list[dict[str, str]]:
        """Return the variables of every process, servers first."""
        hosts = self.machines.addresses if self.machines else ["127.0.0.1"] * 2
        names = [f"{hosts[int(i >= self.servers)]}:{port}" for i, port in enumerate(ports)]
        common = {
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(names[: self.servers]),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(names[self.servers :]),
            "PADDLE_TRAINERS_NUM": str(self.workers),
            "POD_IP": hosts[0],
            "CPU_NUM": "1",
        }
        places = [
            {**common, "PADDLE_PORT": str(port), "TRAINING_ROLE": "PSERVER"} for port in ports
        ]
        for index, place in enumerate(places[self.servers :]):
            place.update(TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID=str(index))
        return places

    def _process(self, place: dict[str, str], machine: int) -> Any:
        kept = {k: v for k, v in self.environment().items() if not k.startswith("PADDLE_")}
        silent = None if self.ours else subprocess.DEVNULL
        command = self.command()
        if self.machines is not None:
            # Processes that see each other in /proc exchange large bodies in memory.
            apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
            command = self.machines.command(machine, [*apart, *command])
            kept["FLEETX_SERVER_INSECURE"] = "1"  # the machines are namespaces of this one
        return self.popen(command, {**kept, **place}, stderr=silent)

    def window(self, steps: int) -> None:
        """Run some steps on all workers; record their total samples per second."""
        before = self.cpu_seconds()
        times = []
        for worker in self.processes[self.servers :]:
            worker.stdin.write(f"{steps}\n")
            worker.stdin.flush()
        for worker in self.processes[self.servers :]:
            self.process = worker
            times.append(float(self._line()))
        samples = steps * BATCH * self.workers
        self.rates.append(samples / max(times))
        self.seconds_of_cpu.append(1000 * (self.cpu_seconds() - before) / samples)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes so far."""
        total = 0.0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total

    def stop(self) -> None:
        """Stop the job; kill processes that are still running half a minute later."""
        for process in self.processes:
            process.stdin.close()
        try:
            for process in self.processes[self.servers :]:
                process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            pass  # some versions of Paddle hang in stop_worker
        finally:
            self._kill()

    def _kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
