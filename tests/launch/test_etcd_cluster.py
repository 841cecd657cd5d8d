"""The entry of an elastic job in a real cluster of three etcds, over https, that loses members."""

from __future__ import annotations

import etcds
import pytest
from etcds import Members, wait_for

from fleetx.launch.elastic_seat import Seat
from fleetx.launch.etcd import Etcd, EtcdError
from waiting import wait_until

pytestmark = etcds.NEEDED


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
