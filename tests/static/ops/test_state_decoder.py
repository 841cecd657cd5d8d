"""Decoders of `contrib`: the numbers of Paddle 1.8.5, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from fleetx import static
from paddle.fluid.contrib.decoder.beam_search_decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)

L = fluid.layers
WORDS, WIDTH, HIDDEN = 12, 6, 5
# What Paddle 1.8.5 computes.
LOSSES = [3.285169, 2.600558, 2.932039]
IDS = [
    0,
    5,
    10,
    10,
    10,
    0,
    5,
    10,
    10,
    5,
    0,
    5,
    10,
    10,
    10,
    0,
    5,
    10,
    10,
    5,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    2,
]
LOD = [[0, 2, 4, 6], [0, 5, 10, 15, 20, 25, 30]]
SCORES = [
    1,
    -0.06487918,
    -1.286128,
    -2.441115,
    -3.516996,
    1,
    -0.06487918,
    -1.286128,
    -2.441115,
    -3.801784,
    1,
    -0.06487918,
    -1.286128,
    -2.441115,
    -3.516996,
    1,
    -0.06487918,
    -1.286128,
    -2.441115,
    -3.801784,
    1,
    -0.05554318,
    -1.311019,
    -2.530265,
    -3.569575,
    1,
    -0.05554318,
    -1.311019,
    -2.530265,
    -4.200943,
]


def lod_tensor(rows: Any, lengths: list[list[int]]) -> Any:
    return fluid.create_lod_tensor(rows, lengths, fluid.CPUPlace())


def new_cell() -> StateCell:
    source = L.embedding(L.data("src", [1], dtype="int64", lod_level=1), [WORDS, WIDTH])
    context = L.fc(L.sequence_last_step(source), HIDDEN, act="tanh")
    states = {"h": InitState(init=context, need_reorder=True)}
    cell = StateCell(inputs={"x": None}, states=states, out_state="h")

    @cell.state_updater
    def update(cell: StateCell) -> None:
        values = [cell.get_state("h"), cell.get_input("x")]
        cell.set_state("h", L.fc(values, HIDDEN, act="tanh"))

    return cell


def fill(program: Any, scope: Any, seed: int) -> None:
    random = np.random.RandomState(seed)
    for parameter in sorted(program.all_parameters(), key=lambda p: p.name):
        value = (random.rand(*parameter.shape) * 2 - 1).astype("float32")
        scope.var(parameter.name).get_tensor().set(value, fluid.CPUPlace())


def source(seed: int) -> Any:
    ids = np.random.RandomState(seed).randint(0, WORDS, (7, 1))
    return lod_tensor(ids.astype("int64"), [[3, 2, 2]])


def build(make: Any) -> tuple[Any, Any]:
    main = static.Program()
    with static.program_guard(main, static.Program()), static.unique_name.guard():
        return main, make()


def test_training() -> None:
    def network() -> Any:
        cell = new_cell()
        words = L.embedding(L.data("trg", [1], dtype="int64", lod_level=1), [WORDS, WIDTH])
        decoder = TrainingDecoder(cell)
        with decoder.block():
            word = decoder.step_input(words)
            decoder.state_cell.compute_state(inputs={"x": word})
            decoder.output(L.fc(decoder.state_cell.get_state("h"), WORDS, act="softmax"))
            decoder.state_cell.update_states()
        label = L.data("lab", [1], dtype="int64", lod_level=1)
        loss = L.mean(L.cross_entropy(decoder(), label))
        fluid.optimizer.SGD(0.5).minimize(loss)
        return loss

    main, loss = build(network)
    scope, exe = static.Scope(), static.Executor()
    fill(main, scope, 0)
    scope.var("learning_rate_0").get_tensor().set(np.array([0.5], "float32"), fluid.CPUPlace())
    losses = []
    with static.scope_guard(scope):
        for seed in range(3):
            random = np.random.RandomState(seed + 10)
            target, label = (
                lod_tensor(random.randint(0, WORDS, (9, 1)).astype("int64"), [[2, 4, 3]])
                for _ in range(2)
            )
            feed = {"src": source(seed), "trg": target, "lab": label}
            losses.append(float(exe.run(main, feed=feed, fetch_list=[loss])[0][0]))
    np.testing.assert_allclose(losses, LOSSES, rtol=1e-5)


def test_beam_search() -> None:
    def network() -> Any:
        first = L.data("ids", [1], dtype="int64", lod_level=2), L.data("scores", [1], lod_level=2)
        decoder = BeamSearchDecoder(
            new_cell(), *first, WORDS, WIDTH, topk_size=8, max_len=4, beam_size=2
        )
        decoder.decode()
        return decoder()

    main, (ids, scores) = build(network)
    scope = static.Scope()
    fill(main, scope, 1)
    ones = [[1, 1, 1], [1, 1, 1]]
    feed = {
        "src": source(0),
        "ids": lod_tensor(np.zeros((3, 1), "int64"), ones),
        "scores": lod_tensor(np.ones((3, 1), "float32"), ones),
    }
    with static.scope_guard(scope):
        found = static.Executor().run(main, feed=feed, fetch_list=[ids, scores], return_numpy=False)
    assert np.array(found[0]).reshape(-1).tolist() == IDS
    assert found[0].lod() == LOD
    np.testing.assert_allclose(np.array(found[1]).reshape(-1), SCORES, rtol=1e-5)


def test_mistakes_are_named() -> None:
    def network() -> None:
        with pytest.raises(ValueError, match="InitState takes init, or init_boot"):
            InitState(shape=[-1, 2])
        boot = L.data("boot", [3])
        states = {"h": InitState(shape=[-1, HIDDEN], value=1.0, init_boot=boot)}
        with pytest.raises(ValueError, match=r"out_state 'c' is not one of the states \['h'\]"):
            StateCell(inputs={}, states=states, out_state="c")
        cell = StateCell(inputs={"x": None}, states=states, out_state="h")
        with pytest.raises(ValueError, match="input 'x' has no value"):
            cell.get_input("x")
        with pytest.raises(ValueError, match=r"'y' is not one of the inputs \['x'\]"):
            cell.compute_state({"y": boot})
        with pytest.raises(RuntimeError, match="Register a function with state_updater"):
            cell.compute_state({"x": boot})
        decoder = TrainingDecoder(cell)
        with pytest.raises(ValueError, match=r"Use TrainingDecoder.output inside its block"):
            decoder.output(boot)
        with pytest.raises(ValueError, match=r"Use TrainingDecoder.__call__ after its block"):
            decoder()
        with pytest.raises(ValueError, match="by only one decoder at a time"):
            TrainingDecoder(cell)

    build(network)
