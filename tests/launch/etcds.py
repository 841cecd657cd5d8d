"""A cluster of three real etcds on this machine, over https."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetx.launch.etcd import Etcd, EtcdError
from ports import consecutive_ports
from waiting import wait_until

ETCD, OPENSSL = shutil.which("etcd"), shutil.which("openssl")
NEEDED = [
    pytest.mark.skipif(ETCD is None, reason="no etcd (Debian: apt install etcd-server)"),
    pytest.mark.skipif(OPENSSL is None, reason="no openssl to make a certificate with"),
    pytest.mark.slow,  # starts three servers
]


class Members:
    """Three etcds, whose clients verify a certificate that this test has made."""

    def __init__(self, folder: Path) -> None:
        self.certificate, key = folder / "etcd.pem", folder / "etcd.key"
        command = f"{OPENSSL} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=etcd".split()
        names = ["-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run([*command, *names, *files], check=True, capture_output=True)
        first = consecutive_ports(6, ["127.0.0.1"])
        self.endpoints = [("https", "127.0.0.1", first + i) for i in range(3)]
        peers = [f"http://127.0.0.1:{first + 3 + i}" for i in range(3)]
        cluster = ",".join(f"member{i}={peer}" for i, peer in enumerate(peers))
        self._log = folder / "etcd.log"
        self._commands = [
            [
                *(str(ETCD), f"--name=member{i}", f"--data-dir={folder / f'etcd{i}'}"),
                *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
                *(f"--listen-peer-urls={peers[i]}", f"--initial-advertise-peer-urls={peers[i]}"),
                *(f"--initial-cluster={cluster}", f"--cert-file={self.certificate}"),
                f"--key-file={key}",
            ]
            for i, client in enumerate("{}://{}:{}".format(*e) for e in self.endpoints)
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for member in range(3):
            self.start(member)

    @property
    def addresses(self) -> str:
        """All members, as --elastic_server takes them."""
        return ",".join("{}://{}:{}".format(*endpoint) for endpoint in self.endpoints)

    def start(self, member: int) -> None:
        with self._log.open("ab") as log:
            command = self._commands[member]
            self._processes[member] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, member: int) -> None:
        process = self._processes.pop(member)
        process.kill()
        process.wait()

    def wait_until_they_agree(self, client: Etcd) -> None:
        def answers() -> bool:
            for process in self._processes.values():
                assert process.poll() is None, self._log.read_text()[-3000:]
            client.get("/x")
            return True

        wait_for(answers, "a leader of the cluster")

    def close(self) -> None:
        for member in list(self._processes):
            self.kill(member)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait for what a cluster without a leader, or a slow one, cannot answer yet."""

    def holds() -> bool:
        with contextlib.suppress(EtcdError):
            return condition()
        return False

    wait_until(holds, what)
