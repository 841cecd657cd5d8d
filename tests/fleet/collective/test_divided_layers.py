"""Layers divided among workers (`split`) train as whole ones, or are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warm_start
from fleetx import static
from fleetx.runtime import membership
from fleetx.static import layers, optimizer
from fleetx.static.nn.divided import split
from fleetx.static.tensor.common import get_default_dtype, set_default_dtype
from waiting import LIMIT

FOLDER = Path(__file__).parent / "workers"
sys.path.insert(0, str(FOLDER))

import divided_layers as script  # noqa: E402

RUNS: dict[str, Callable[[], Any]] = {
    **script.OPTIMIZERS,
    "merged": lambda: optimizer.GradientMergeOptimizer(script.OPTIMIZERS["adam"](), 2, True),
}


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    """What two workers have at the end of all runs."""
    folder = tmp_path_factory.mktemp("divided")
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2"]
    command += ["--log_dir", str(folder / "log"), str(FOLDER / "divided_layers.py"), str(folder)]
    done = subprocess.run(
        command, env=warm_start.environment(), capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = []
    for rank in range(2):
        with np.load(folder / f"{rank}.npz") as file:
            results.append(dict(file))
    return results


@pytest.fixture
def usual_dtype() -> Iterator[None]:
    before = get_default_dtype()
    yield
    set_default_dtype(before)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.usefixtures("usual_dtype")
def test_two_workers_train_like_the_whole_network(
    run: str, divided: list[dict[str, np.ndarray]]
) -> None:
    whole = script.train(RUNS[run], 0, 1)
    assert np.ptp(whole["losses"]) > 1e-3
    for rank, found in enumerate(divided):
        for name, value in whole.items():
            wanted = script.part(name, value, rank, 2) if name in script.SHAPES else value
            had = found[f"{run} {name}"]
            if name == "table":  # its last row is for the ids of others, and is never read
                wanted, had = wanted[:-1], had[:-1]
            np.testing.assert_allclose(had, wanted, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"),
    {
        "global norm": "GradientClipByGlobalNorm needs the norm of whole gradients",
        "lamb": "the update 'lamb' looks at whole parameters",
        "wrapped": "LookaheadOptimizer may work on whole parameters",
        "amp": "amp works on whole parameters: switch off amp",
        "localsgd": "localsgd works on whole parameters",
        "sharding": "sharding works on whole parameters",
        "saving": "let each one call static.save with a path of its own",
    }.items(),
)
def test_what_needs_whole_parameters_is_refused(
    what: str, words: str, divided: list[dict[str, np.ndarray]]
) -> None:
    for found in divided:
        assert words in str(found[f"refused {what}"])


class Second:
    """The second of two workers."""

    worker_index = staticmethod(lambda: 1)
    worker_num = staticmethod(lambda: 2)
    local_rank = staticmethod(lambda: 1)
    is_worker = staticmethod(lambda: True)
    is_server = staticmethod(lambda: False)


@pytest.fixture
def as_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_find", Second)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": [8]}, r"a list or tuple of two, not \[8\]"),
        ({"operation": "conv"}, "must be 'linear' or 'embedding', but received 'conv'"),
        ({"axis": 2}, "axis of split.. must be 0 or 1"),
        ({"operation": "embedding", "axis": 1}, "must be 0 for operation='embedding', not 1"),
        ({"num_partitions": 0}, "must be at least 1, not 0"),
        ({"num_partitions": 4}, r"the job has 2 worker\(s\)"),
        ({"size": (8, 5), "axis": 1}, "5 columns of the weight evenly: num_partitions=2"),
        ({"size": (12, 4)}, "last dimension of x in split.. is 8: it must be 6 or 12"),
        ({"gather_out": False}, "set bias_attr=False instead of None"),
    ],
)
@pytest.mark.usefixtures("as_second")
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    usual = {"size": (8, 4), "operation": "linear", "num_partitions": 2}
    with static.program_guard(static.Program(), static.Program()):
        x = static.data("x", [None, 8])
        with pytest.raises(ValueError, match=words):
            split(x, **{**usual, **arguments})


def test_a_job_is_needed() -> None:
    with static.program_guard(static.Program(), static.Program()):
        x = static.data("x", [None, 8])
        with pytest.raises(RuntimeError, match="call fleet.init"):
            split(x, (8, 4), "linear")


def test_parts_draw_other_values_and_need_the_optimizer_of_fleet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = []
    for member in (Second, type("First", (Second,), {"worker_index": staticmethod(lambda: 0)})):
        monkeypatch.setattr(membership, "_find", member)
        main, startup = static.Program(), static.Program()
        startup.random_seed = 3
        with static.program_guard(main, startup), static.unique_name.guard():
            out = split(static.data("x", [None, 8]), (8, 4), "linear", 1, 2)
            assert out.shape == (-1, 4)
            drawn = [op for op in startup.global_block().ops if "seed" in op.attrs]
            seeds += [op.attr("seed") for op in drawn]
            with pytest.raises(RuntimeError, match="train with fleet.distributed_optimizer"):
                optimizer.SGD(0.1).minimize(layers.mean(out))
    assert len(seeds) == len(set(seeds)) == 2
