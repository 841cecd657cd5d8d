"""A Slurm cluster of two "machines" on this one: real daemons in a folder of their own.

Two slurmd under the names 127.0.0.1 and 127.0.0.2, which are also their addresses; munged with a
fresh key. Nothing of an installed cluster is read or written. All processes belong to this test
and are ended with it.
"""

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ports import consecutive_ports
from waiting import LIMIT, wait_until

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}
HOSTS = ["127.0.0.1", "127.0.0.2"]
CPUS = 8
_DAEMONS = "/usr/sbin:/sbin:/usr/local/sbin"

_CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
KillWait=5
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Name the Debian packages that are not installed, or return ''."""
    return " ".join(package for name, package in PROGRAMS.items() if _program(name) is None)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_DAEMONS}")


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """Start the daemons; yield the variables with which srun and sinfo find them."""
    # Not pytest's folder: munged's socket needs a short path that everybody may enter.
    with TemporaryDirectory(prefix="slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        with _daemons(folder) as variables:
            yield variables


@contextmanager
def _daemons(folder: Path) -> Iterator[dict[str, str]]:
    started: list[subprocess.Popen[bytes]] = []
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    try:
        started.append(_munged(folder))
        wait_until((folder / "munge.socket").exists, "munged")
        _configure(folder)
        started.append(_start(folder, "slurmctld", "-D"))
        started += [_start(folder, "slurmd", "-D", "-N", host) for host in HOSTS]
        wait_until(lambda: _idle(variables) == len(HOSTS), "two idle machines of Slurm")
        yield variables
        # slurmstepd reports the end of its step after srun has returned, and tries for minutes if
        # slurmctld has gone by then.
        wait_until(lambda: _idle(variables) == len(HOSTS), "the end of all steps of Slurm")
    except AssertionError as error:
        for log in folder.glob("*.out"):
            error.add_note(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}")
        raise
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            _end(process)


def _munged(folder: Path) -> "subprocess.Popen[bytes]":
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    files = {"socket": "socket", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
    options = [f"--{flag}={folder}/munge.{ending}" for flag, ending in files.items()]
    return _start(folder, "munged", "--foreground", f"--key-file={key}", *options)


def _configure(folder: Path) -> None:
    port = consecutive_ports(3, HOSTS)
    nodes = "\n".join(
        f"NodeName={host} NodeHostname=localhost NodeAddr={host} Port={port + 1 + i} CPUs={CPUS}"
        for i, host in enumerate(HOSTS)
    )
    values = {"port": port, "user": getpass.getuser(), "folder": folder, "nodes": nodes}
    (folder / "slurm.conf").write_text(_CONFIGURATION.format(**values))


def _start(folder: Path, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
    program = _program(name)
    assert program is not None
    own = [] if name == "munged" else ["-f", str(folder / "slurm.conf")]
    with (folder / f"{name}.out").open("ab") as out:
        return subprocess.Popen([program, *arguments, *own], stdout=out, stderr=out, cwd=folder)


def _idle(variables: dict[str, str]) -> int:
    command = ["sinfo", "--noheader", "--Node", "--format=%t"]
    found = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=LIMIT
    )
    return found.stdout.split().count("idle")


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
