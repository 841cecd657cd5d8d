"""The entry of an elastic job in a real cluster of three etcds, over https, that loses members."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetx.launch.elastic_seat import Seat
from fleetx.launch.etcd import Etcd, EtcdError
from ports import consecutive_ports
from waiting import wait_until

ETCD, OPENSSL = shutil.which("etcd"), shutil.which("openssl")
pytestmark = [
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


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    found = Members(tmp_path)
    yield found
    found.close()


def test_a_cluster_over_https_outlives_one_of_three_members(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Etcd(members.endpoints, timeout=2.0)

    def is_refused() -> bool:
        """Return whether a member is there; what it sends must not be taken."""
        with pytest.raises(EtcdError) as found:
            client.get("/x")
        return str(found.value).count("CERTIFICATE_VERIFY_FAILED") == 3

    wait_until(is_refused, "members with a certificate that nobody has vouched for")
    monkeypatch.setenv("SSL_CERT_FILE", str(members.certificate))
    members.wait_until_they_agree(client)
    # The time limit of the lease is not what this test is about.
    owner, other = (Seat(Etcd(members.endpoints), "job", b"secret", 600.0) for _ in range(2))
    try:
        assert owner.take("10.0.0.1", 6170)
        assert not other.take("10.0.0.2", 6170)
        lease = client.grant(600)
        members.kill(0)
        members.wait_until_they_agree(client)
        wait_for(lambda: client.keep_alive(lease), "a lease that can be kept alive")
        wait_for(lambda: other.holder() == ("10.0.0.1", 6170), "the entry")
        members.kill(1)
        with pytest.raises(EtcdError):
            client.create("/y", b"", lease)
        members.start(1)
        members.wait_until_they_agree(client)
        wait_for(lambda: other.holder() == ("10.0.0.1", 6170), "the entry")
        assert not owner.is_lost
        owner.leave()
        assert other.take("10.0.0.2", 6170)
    finally:
        for seat in (owner, other):
            seat.leave()
