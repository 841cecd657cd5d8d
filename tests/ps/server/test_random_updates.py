"""Updates that draw random numbers: a restarted server has drawn the same."""

import contextlib

import torch
from training import dense_specs, first_values

from fleetx.ps.server.durable_state import DurableState
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Header, Kind


def test_noise_is_the_same_when_the_log_is_replayed(tmp_path):
    settings = ServerSettings(durability=Durability(folder=tmp_path))
    spec = dense_specs(1, "dpsgd", False)[0]
    values = list(enumerate(first_values().values()))
    state = DurableState(settings)
    requests = [(Kind.CREATE, wire.json_body(spec.to_dict())), *[(Kind.PUSH, values)] * 3]
    for number, (kind, tensors) in enumerate(requests, 1):
        header = Header(kind, incarnation=7, sequence=number)
        state.change(Message(header, tensors), contextlib.nullcontext)
    found, _ = state.state.capture()
    state.close()
    again = DurableState(settings)
    restored, _ = again.state.capture()
    again.close()
    assert found.keys() == restored.keys()
    for name, value in found.items():
        assert torch.equal(restored[name], value), name
