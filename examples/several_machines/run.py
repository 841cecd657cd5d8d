"""Train on several machines without having them: network namespaces on this one play their parts.

Each has an address of its own and a cable to a common switch; `fleetrun --ips` is started in each,
exactly as on real machines. With --cut_off the last machine's cable is pulled while they train,
to see what the others say. Needs Linux, the command `ip` and the right to make namespaces (root).
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "pytorch" / "train_fleet.py"


class Network:
    """Namespaces with a cable each to a switch, which is a namespace too."""

    def __init__(self, count: int) -> None:
        name = f"fleetx{os.getpid()}"
        self.switch = f"{name}-switch"
        self.addresses = {f"{name}-{i}": f"10.77.0.{i + 1}" for i in range(count)}
        self.machines = list(self.addresses)

    def build(self) -> None:
        """Make the namespaces and lay the cables."""
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for number, (machine, address) in enumerate(self.addresses.items()):
            ip("netns", "add", machine)
            far_end = ["peer", f"port{number}", "netns", self.switch]
            ip("-n", machine, "link", "add", "eth0", "type", "veth", *far_end)
            ip("-n", self.switch, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", machine, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", machine, "link", "set", device, "up")

    def pull_cable(self, number: int) -> None:
        """Cut a machine off from the others."""
        ip("-n", self.switch, "link", "set", f"port{number}", "down")

    def remove(self) -> None:
        """Remove the namespaces; their cables go with them."""
        for namespace in (*self.machines, self.switch):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)


def ip(*arguments: str) -> None:
    """Run the command `ip`; its complaint is the error."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """Build the machines, and remove them whatever happens."""
    machines = Network(count)
    try:
        machines.build()
        yield machines
    finally:
        machines.remove()


def start(machines: Network, output: Path, workers: int) -> list[subprocess.Popen[str]]:
    """Start fleetrun on every machine: the same command everywhere."""
    ips = ",".join(machines.addresses.values())
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    started: list[subprocess.Popen[str]] = []
    for number, machine in enumerate(machines.machines):
        log = output / f"machine{number}"
        log.mkdir(parents=True, exist_ok=True)
        fleetrun = [sys.executable, "-m", "fleetx.launch", "--ips", ips, "--log_dir", str(log)]
        command = [*fleetrun, "--nproc_per_node", str(workers), str(SCRIPT)]
        with (log / "fleetrun.txt").open("w") as file:
            terminal = file if started else subprocess.PIPE  # only the first machine's is shown
            started.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", machine, *command],
                    env=environment,
                    text=True,
                    stdout=terminal,
                    stderr=subprocess.STDOUT,
                )
            )
    return started


def show(machine: subprocess.Popen[str], machines: Network, *, cut_off: bool) -> float:
    """Print what the first machine says; return when the last one was cut off (0 if it was not)."""
    pulled = 0.0
    assert machine.stdout is not None
    for line in machine.stdout:
        print(line, end="", flush=True)
        if cut_off and not pulled and line.startswith("epoch 1:"):
            machines.pull_cable(len(machines.machines) - 1)
            pulled = time.monotonic()
            print(f"--- the cable of {list(machines.addresses.values())[-1]} is pulled", flush=True)
    return pulled


def main() -> int:
    """Build machines, train on them, remove them."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--machines", type=int, default=2, help="how many (2)")
    parser.add_argument("--workers", type=int, default=1, help="workers on each (1)")
    parser.add_argument("--cut_off", action="store_true", help="pull the last one's cable")
    default = Path(__file__).parent / "output"
    parser.add_argument("--output", type=Path, default=default, help="folder for logs")
    options = parser.parse_args()
    if options.machines < 2:
        parser.error(f"--machines must be at least 2, not {options.machines}.")
    with network(options.machines) as machines:
        started = start(machines, options.output, options.workers)
        try:
            pulled = show(started[0], machines, cut_off=options.cut_off)
            first = started[0].wait()
            if pulled:
                after = time.monotonic() - pulled
                print(f"--- fleetrun on the first machine ended {after:.1f} s later, code {first}")
            for machine in started[1:]:
                machine.wait()
        finally:
            for machine in started:
                machine.terminate()
                machine.wait()
    codes = [machine.returncode for machine in started]
    print(f"--- exit codes of fleetrun: {codes}")
    failed = any(codes)
    return int(failed != options.cut_off)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(f"The machines could not be made (are you root?): {error}")
