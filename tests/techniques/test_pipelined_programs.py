"""Programs that are cut into the stages of a pipeline train as one process trains them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import run
from test_hybrid import assert_close
from workers import pipelined_programs as worker

from fleetx.comm.layout import Group
from fleetx.comm.point_to_point import Peers
from fleetx.static.run.pipeline_stage import PipelineStage

pytestmark = pytest.mark.slow  # trains dozens of times on two to four workers
Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelined_programs")


@pytest.fixture(scope="module")
def trained(folder: Path) -> Results:
    return run("pipelined_programs.py", folder, "2")


def alone(name: str, stages: int = 2) -> worker.Training:
    kind, configs, model, more = worker.CASES[name]
    return worker.Training(kind, configs, model, more, stages, pipelined=False)


def assert_equal(results: Results, name: str, stages: int) -> None:
    """Every parameter is on the worker of one stage, and has the value of one process."""
    one = alone(name, stages).train()
    expected, found = one.values(), {}
    copies = len(results) // stages
    for rank, result in enumerate(results):
        own = result["cases"][name]["values"]
        assert_close(own, {key: expected[key] for key in own})
        assert rank >= stages or not own.keys() & found.keys()
        found.update(own)
        losses = result["cases"][name]["losses"]
        if rank % stages < stages - 1:
            assert losses == [None] * worker.STEPS
        elif copies == 1:
            np.testing.assert_allclose(losses, one.losses, rtol=1e-10)
    assert found.keys() == expected.keys()


@pytest.mark.parametrize("name", worker.CASES)
def test_two_stages_train_like_one_process(trained: Results, name: str, fresh_fleet: None) -> None:
    assert_equal(trained, name, 2)


THREE = ("skips", "adam, 1F1B", "momentum, F-then-B", "global norm")


def test_three_stages_train_like_one_process(tmp_path: Path, fresh_fleet: None) -> None:
    results = run("pipelined_programs.py", tmp_path, "3", *THREE, workers=3)
    for name in THREE:
        assert_equal(results, name, 3)


def test_copies_of_a_pipeline_average(tmp_path: Path, fresh_fleet: None) -> None:
    names = ("adam, 1F1B", "global norm")
    results = run("pipelined_programs.py", tmp_path, "2", *names, workers=4)
    for name in names:
        assert_equal(results, name, 2)
        ops = [op for op, _ in results[0]["cases"][name]["ops"]]
        assert ops.count("c_allreduce_sum") == 4 + (name == "global norm")


def test_the_program_shows_what_runs(trained: Results) -> None:
    first, last = (result["cases"]["adam, 1F1B"] for result in trained)
    for result, device, count in ((first, "gpu:0", 4), (last, "gpu:1", 6)):
        ops = [op for op, _ in result["ops"]]
        assert ops.count("send_v2") == ops.count("recv_v2") == 1
        assert ops.count("adam") == count
        assert {place for _, place in result["ops"]} <= {device, "gpu:all"}
    # Forward it is sent before it is received, backward the other way round.
    assert first["ops"].index(["send_v2", "gpu:0"]) < first["ops"].index(["recv_v2", "gpu:0"])
    assert last["ops"].index(["recv_v2", "gpu:1"]) < last["ops"].index(["send_v2", "gpu:1"])


def test_the_bytes_of_messages_are_told(trained: Results) -> None:
    # 4 messages, each of 2 samples with 5 values of 8 bytes, and its shape
    assert [result["cases"]["sized"]["sent"] for result in trained] == [4 * (80 + 16)] * 2


def test_workers_keep_the_state_of_their_stage(trained: Results, fresh_fleet: None) -> None:
    first, last = (result["cases"]["adam, 1F1B"] for result in trained)
    assert set(first["state"]) & set(last["state"]) == {"learning_rate_0"}
    whole = alone("adam, 1F1B")
    kept = {v.name for v in whole.main.list_vars() if v.persistable}
    assert set(first["state"]) | set(last["state"]) == kept
    made = len(whole.startup.global_block().ops)
    assert len(first["startup"]) + len(last["startup"]) == made + 1


def test_all_stages_together_save_everything(
    trained: Results, folder: Path, fresh_fleet: None
) -> None:
    expected = alone(worker.SAVED).train().values()
    for result in trained:
        own = result["saved"]["values"]
        assert_close(own, {name: expected[name] for name in own})
        file, model = result["saved"]["refused"]
        assert "leave filename out" in file
        assert "every worker has one stage of it (pipeline)" in model
    one = alone(worker.SAVED)
    with worker.fluid.scope_guard(one.scope):
        worker.fluid.io.load_persistables(one.exe, str(folder / "saved"), one.main)
    assert_close(one.train(range(2, worker.STEPS)).values(), expected)


def test_fetches_are_those_of_the_batch(trained: Results, fresh_fleet: None) -> None:
    one = alone("sgd, 1F1B")
    names = [one.loss.name, "fc_3.tmp_2", "fc_0.w_0", "fc_0.w_0@GRAD", "x"]
    with worker.fluid.scope_guard(one.scope):
        expected = one.exe.run(one.main, feed=worker.batch(0), fetch_list=names)
    first, last = (result["fetched"] for result in trained)
    has = {0: [False, False, True, True, True], 1: [True, True, False, False, True]}
    for place, result in enumerate((first, last)):
        assert [value is not None for value in result["values"]] == has[place]
        for value, whole in zip(result["values"], expected, strict=True):
            if value is not None:
                np.testing.assert_allclose(value, whole, rtol=1e-10)
    assert first["evaluated"] is None
    np.testing.assert_allclose(last["evaluated"], expected[0][0], rtol=1e-10)


def test_readers_give_micro_batches(trained: Results, fresh_fleet: None) -> None:
    expected = alone("momentum, 1F1B").train().values()
    for result in trained:
        own = result["read"]["values"]
        assert_close(own, {name: expected[name] for name in own})
        assert result["read"]["ended"]


def test_half_precision_without_a_scale(trained: Results, fresh_fleet: None) -> None:
    one = worker.Training("sgd", {}, "plain", worker.BFLOAT16, pipelined=False).train()
    np.testing.assert_allclose(trained[1]["bfloat16"], one.losses, rtol=0.02)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("odd", "cannot be divided into the 4 equal micro-batches"),
        ("small", "feed batches of 8, or leave micro_batch_size out"),
        ("different", "worker 1 is fed another 'ids' than worker 0"),
        ("compiled", "a stage of a pipeline cannot be compiled"),
        ("merged", "pipeline and gradient_merge, which FleetX cannot combine for programs"),
        ("sharding", "pipeline and sharding, which FleetX cannot combine for programs"),
        ("half", "set amp_configs = {'dtype': 'bfloat16'}"),
        ("localsgd", "which acts between copies of the model"),
        ("dgc", "which acts between copies of the model"),
        ("stop_on_nan", "pipeline and stop_on_nan, which FleetX cannot combine for programs"),
        ("clip", "clip by the optimizer's grad_clip=GradientClipByGlobalNorm"),
        ("VPP", "set it to '1F1B' or 'F-then-B'"),
        ("stages", "a program is cut by the devices of its layers"),
        ("shared", "'both' is used on stages 0 and 1 of the pipeline"),
        ("backwards", "let layers follow each other from device to device"),
        ("sequences", "pad them"),
        ("frozen", "stage 0 of the pipeline trains nothing"),
        ("no device", "the layers of the program name no device"),
        ("devices", "on 0 device(s) (device_guard), but the pipeline has 2 workers"),
    ],
)
def test_what_is_refused(trained: Results, name: str, words: str) -> None:
    for result in trained:
        assert words in result["refused"][name]


def test_a_lost_stage_ends_the_others(tmp_path: Path) -> None:
    first, _ = run("lost_stage.py", tmp_path)
    assert "onnection" in first["words"]


def stage(index: int, stages: int, micro_batches: int, mode: str) -> PipelineStage:
    return PipelineStage(
        index=index,
        stages=stages,
        micro_batches=micro_batches,
        micro_batch_size=None,
        mode=mode,
        peers=Peers(Group([0], 0, None)),
        elsewhere=frozenset(),
        compare=lambda feed: None,
    )


def test_the_order_of_micro_batches() -> None:
    def text(*arguments: Any) -> str:
        order = stage(*arguments).order()
        return " ".join(f"{'F' if is_forward else 'B'}{i}" for is_forward, i in order)

    assert text(0, 2, 3, "F-then-B") == "F0 F1 F2 B0 B1 B2"
    assert text(1, 2, 3, "1F1B") == "F0 B0 F1 B1 F2 B2"
    assert text(0, 3, 4, "1F1B") == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert text(0, 3, 1, "1F1B") == "F0 B0"
