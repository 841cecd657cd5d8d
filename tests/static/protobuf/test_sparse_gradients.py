"""Saved programs state which gradients are selected rows: Paddle reads it from the variables."""

from __future__ import annotations

import pytest

from fleetx import static
from fleetx.checkpoint.program_desc import VarType
from fleetx.static.protobuf.serialize import program_from_bytes, program_to_bytes


def kinds(*, is_sparse: bool, look_ups: int, clip: bool = False) -> dict[str, int]:
    main = static.Program()
    with static.program_guard(main, static.Program()), static.unique_name.guard():
        ids = static.data("ids", [-1, 1], "int64")
        attr = static.ParamAttr(name="table")
        rows = [
            static.layers.embedding(ids, [9, 4], is_sparse=is_sparse, param_attr=attr)
            for _ in range(look_ups)
        ]
        loss = static.layers.mean(static.layers.sums(rows))
        limit = static.clip.GradientClipByGlobalNorm(1.0) if clip else None
        static.optimizer.SGD(0.1, grad_clip=limit).minimize(loss)
    read = program_from_bytes(program_to_bytes(main), source="program")
    (update,) = (op for op in read.global_block().ops if op.type == "sgd")
    names = [n for n in read.global_block().vars if n.startswith("table@GRAD")]
    return {n: read.global_block().vars[n].type for n in {*names, *update.input("Grad")}}


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("look_ups", [1, 2])
def test_gradients_of_sparse_look_ups_are_selected_rows(look_ups: int, clip: bool) -> None:
    found = kinds(is_sparse=True, look_ups=look_ups, clip=clip)
    assert len(found) >= look_ups
    assert set(found.values()) == {VarType.SELECTED_ROWS}


def test_gradients_of_dense_look_ups_are_tensors() -> None:
    assert set(kinds(is_sparse=False, look_ups=2).values()) == {VarType.LOD_TENSOR}
