"""Workers wait for a frozen server for up to `server_wait`."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from processes import servers
from training import sparse_spec

from fleetx.ps.client.client import Client, ClientSettings
from fleetx.ps.wire.liveness import PeerLostError
from fleetx.runtime import heartbeat
from fleetx.runtime.server_support import detect_server_support
from waiting import wait_until

# Longer than the time between two heartbeats.
LEASE = 1.3
IDS = torch.arange(3)
ONES = torch.ones(3, 4).double()


@pytest.mark.slow
def test_a_frozen_server_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beat = tmp_path / "beat"
    heartbeat.prepare(beat)
    monkeypatch.setenv("FLEETX_HEARTBEAT", str(beat))
    monkeypatch.setattr(heartbeat, "_writer", None)
    with servers(1) as (endpoints, (server,)), ThreadPoolExecutor(1) as other:
        client = Client(endpoints, settings=ClientSettings(lease=LEASE))
        client.create(sparse_spec())
        before = client.pull_sparse("rows", IDS)
        server.signal(signal.SIGSTOP)
        pushed = other.submit(client.push_sparse, "rows", IDS, ONES)
        wait_until(lambda: "has not replied" in caplog.text, "the server to be noticed")
        shown = heartbeat.read(beat).signs
        wait_until(lambda: heartbeat.read(beat).signs > shown, "a sign of life")
        server.signal(signal.SIGCONT)
        pushed.result()
        assert torch.allclose(client.pull_sparse("rows", IDS), before - 0.2 * ONES)  # once
        wait_until(lambda: "answers again" in caplog.text, "the end of the wait to be logged")
        client.finish()
    warning = "Waiting up to 120 s (--server_wait): server 0 at "
    assert caplog.text.count(warning) == 1


@pytest.mark.slow
def test_the_wait_has_an_end_that_names_server_and_setting() -> None:
    with servers(1) as (endpoints, (server,)):
        # Also the time for the first connection, on a machine that may be busy.
        client = Client(endpoints, settings=ClientSettings(server_wait=4.0))
        client.create(sparse_spec())
        server.signal(signal.SIGSTOP)
        with pytest.raises(PeerLostError) as caught:
            client.pull_sparse("rows", IDS)
        client.close()
    text = str(caught.value)
    assert text.startswith(f"server 0 at {endpoints[0]} has not replied for ")
    assert text.endswith("Waited 4 s (--server_wait, FLEETX_SERVER_WAIT).")


def test_the_variable() -> None:
    assert detect_server_support({}).server_wait is None
    assert detect_server_support({"FLEETX_SERVER_WAIT": "2.5"}).server_wait == 2.5
    with pytest.raises(ValueError, match="FLEETX_SERVER_WAIT must be a number of seconds"):
        detect_server_support({"FLEETX_SERVER_WAIT": "0"})
