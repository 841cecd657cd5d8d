"""The ops here have the slots and the kinds of attributes of real Paddle's, so that files fit."""

import json
from pathlib import Path

from engines import Engine

import fleetx.static
from fleetx.checkpoint.program_desc import AttrType
from fleetx.static.graph.op_registry import get_op, op_types
from fleetx.static.protobuf.op_proto import op_proto

# What the two releases themselves store differently; the kind of a file that was read is kept.
CHANGED = {
    ("allclose", "rtol"),
    ("allclose", "atol"),
    ("isclose", "rtol"),
    ("isclose", "atol"),
    ("lars_momentum", "lars_weight_decay"),
    ("reduce_all", "dim"),
    ("reduce_amax", "dim"),
    ("reduce_amin", "dim"),
    ("reduce_any", "dim"),
}
# Ops of Paddle 1.x whose name means another op in 2.x, or one with other slots.
OTHER_IN_2 = {"broadcast", "cudnn_lstm"}
# Ops of a worker's program, which is written for this engine's servers and never saved: its outputs
# are not Paddle's.
OURS = {"distributed_lookup_table"}


def test_slots_and_kinds_are_paddles(paddle: Engine, tmp_path: Path) -> None:
    assert fleetx.static.ops
    paddle.run("op_protos.py", tmp_path / "ops")
    real = json.loads((tmp_path / "ops").read_text())
    wrong = []
    compared = 0
    for name in op_types():
        if name not in real or name.endswith("_grad") or name in OURS:
            continue
        if paddle.api == "static" and name in OTHER_IN_2:
            continue
        compared += 1
        op = get_op(name)
        for kind, slots in (("inputs", op.inputs), ("outputs", op.outputs)):
            strange = {slot.name for slot in slots if not slot.optional} - set(real[name][kind])
            wrong += [f"{name}: no {kind[:-1]} {slot}" for slot in strange]
        if paddle.api == "fluid":
            notes = [slot.name for slot in op_proto(name).outputs if slot.intermediate]
            differ = set(notes) ^ set(real[name]["intermediate"])
            wrong += [f"{name}: {slot} is intermediate on one side only" for slot in differ]
        for attr, declared in op.attrs.items():
            number = real[name]["attrs"].get(attr)
            if number is None or (name, attr) in CHANGED:
                continue
            if AttrType(number).name != declared.kind:
                wrong.append(f"{name}.{attr}: {declared.kind}, there {AttrType(number).name}")
    assert not wrong
    assert compared > 250
