"""Elastic jobs that find their first machine in etcd: a real etcd, real launchers, real kills."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elastic_results import plan_of, require_close, status_of, train_alone
from etcds import ETCD, OPENSSL, Members
from test_elastic_machines import Cluster, kill

from fleetx.launch.elastic_seat import ForgedSeatError, Seat
from fleetx.launch.etcd import Etcd, EtcdError
from ports import consecutive_ports
from waiting import wait_until

pytestmark = pytest.mark.skipif(ETCD is None, reason="no etcd (Debian: apt install etcd-server)")
SECRET = b"of this job only"


class Server:
    """An etcd of one member."""

    def __init__(self, folder: Path) -> None:
        port = consecutive_ports(2, ["127.0.0.1"])
        self.endpoint = ("http", "127.0.0.1", port)
        client, peer = (f"http://127.0.0.1:{p}" for p in (port, port + 1))
        assert ETCD is not None
        self._command = [
            ETCD,
            f"--data-dir={folder / 'etcd'}",
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
        ]
        self._log = folder / "etcd.log"
        self.start()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        client = Etcd([self.endpoint])

        def answers() -> bool:
            assert self._process.poll() is None, self._log.read_text()
            with contextlib.suppress(EtcdError):
                return client.get("/x") is None
            return False

        wait_until(answers, "etcd")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    yield found
    found.stop()


@pytest.mark.slow
def test_seat_has_one_owner_until_its_lease_ends(server: Server) -> None:
    dead = ("http", "127.0.0.1", consecutive_ports(1, ["127.0.0.1"]))
    first, second = (Seat(Etcd([dead, server.endpoint]), "job", SECRET, 2.0) for _ in range(2))
    other = Seat(Etcd([server.endpoint]), "another job", SECRET, 2.0)
    try:
        assert first.holder() is None
        assert first.take("127.0.0.1", 6170)
        assert not second.take("127.0.0.2", 6170)
        assert second.holder() == ("127.0.0.1", 6170)
        assert other.holder() is None
        server.stop()
        wait_until(lambda: first.is_lost, "an owner that cannot renew its lease")
        server.start()
        wait_until(lambda: second.take("127.0.0.2", 6171), "the end of the lease")
        assert first.is_lost
        assert not second.is_lost
        assert first.holder() == ("127.0.0.2", 6171)
        first.leave()  # which is not the owner any more
        assert second.holder() == ("127.0.0.2", 6171)
        second.leave()
        assert second.holder() is None
    finally:
        for seat in (first, second, other):
            seat.leave()


def test_entry_of_somebody_else_is_refused(server: Server) -> None:
    etcd = Etcd([server.endpoint])
    seat = Seat(etcd, "job", SECRET, 30.0)
    forged: list[Any] = [
        b"",
        b"\xff",
        b"[" * 3000,
        b"{}" + b" " * 5000,
        b"[]",
        json.dumps({"host": "127.0.0.1", "port": 1, "mac": "é"}).encode(),
        json.dumps({"host": "127.0.0.1", "port": True, "mac": "00"}).encode(),
        json.dumps({"host": "127.0.0.1", "port": 70000, "mac": "00"}).encode(),
        json.dumps({"host": 3, "port": 1, "mac": "00"}).encode(),
        json.dumps({"host": "10.0.0.1", "port": 6170, "mac": "00" * 32}).encode(),
    ]
    for content in forged:
        lease = etcd.grant(30)
        assert etcd.create("/fleetx/job/coordinator", content, lease)
        with pytest.raises(ForgedSeatError, match="not written with this job's secret"):
            seat.holder()
        etcd.revoke(lease)
    stranger = Seat(etcd, "job", b"another secret", 30.0)
    try:
        assert stranger.take("10.0.0.1", 6170)
        with pytest.raises(ForgedSeatError):
            seat.holder()
    finally:
        stranger.leave()
    with pytest.raises(EtcdError, match="status 404"):
        etcd._call("/v3/nothing", {})


class ElectedCluster(Cluster):
    """A job without a machine that has to stay."""

    def wait(self, condition: Any, what: str) -> None:
        wait_until(condition, what)


@pytest.mark.slow
@pytest.mark.skipif(OPENSSL is None, reason="no openssl to make a certificate with")
def test_job_survives_the_loss_of_its_first_machine(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training over https, whose cluster of three etcds loses one of them, too."""
    monkeypatch.setenv("SSL_CERT_FILE", str(members.certificate))
    members.wait_until_they_agree(Etcd(members.endpoints))
    leads = "This machine is the first one"
    flags = ("--nnodes=2:3", "--elastic_timeout=4", "--rdzv_timeout=120", "--max_restart=20")
    job = ElectedCluster(tmp_path, f"--elastic_server={members.addresses}", *flags, resume=True)
    try:
        first = job.start("127.0.0.1")
        job.wait(lambda: leads in first.stderr, "the first machine")
        others = [job.start("127.0.0.2"), job.start("127.0.0.3")]
        job.wait_for(3)
        kill(first)
        steps = status_of(tmp_path)[1]
        job.wait_for(2)
        # One of them, or both in turn: a first machine that etcd does not answer in time gives up.
        assert any(leads in launch.stderr for launch in others)
        assert status_of(tmp_path)[1] >= steps  # from the checkpoint, not from the beginning
        others.sort(key=lambda launch: leads in launch.stderr)
        last, second = others
        third = job.start("127.0.0.4")
        job.wait_for(3)
        members.kill(0)
        second.process.send_signal(signal.SIGTERM)  # leaves, as every other machine may
        assert second.end() == 128 + signal.SIGTERM
        job.wait_for(2)
        for number in range(3):
            (tmp_path / f"result.{number}").unlink(missing_ok=True)
        (tmp_path / "last.part").write_text(str(status_of(tmp_path)[0] + 2))
        (tmp_path / "last.part").rename(tmp_path / "last")
        assert [launch.end() for launch in (last, third)] == [0, 0], job.text()
        results = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("result.*"))]
        assert len({json.dumps(result["parameters"]) for result in results}) == 1
        plan = plan_of(global_batch_size=6)
        require_close(results[0]["parameters"], train_alone(results[0], plan, 0.1, 0.9))
        assert Etcd(members.endpoints).get("/fleetx/default/coordinator") is None
    finally:
        job.close()
