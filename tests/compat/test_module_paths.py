"""Modules under Paddle's own paths: a table of aliases, and names reached without an import."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

import paddle
import paddle.fluid as fluid
import warm_start
from paddle._aliases import ALIASES


@pytest.mark.parametrize("path", sorted(ALIASES))
def test_alias_passes_names_on(path: str) -> None:
    module = importlib.import_module(path)
    source = importlib.import_module(ALIASES[path])
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is getattr(source, name)
    with pytest.raises(AttributeError, match=rf"{path}.no_such_name is not covered"):
        _ = module.no_such_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("paddle.nn.layer.conv", "Conv2D"),
        ("paddle.nn.functional.loss", "cross_entropy"),
        ("paddle.optimizer.adam", "Adam"),
        ("paddle.vision.models.resnet", "resnet50"),
        ("paddle.fluid.dataloader.batch_sampler", "BatchSampler"),
        ("paddle.distribution", "Normal"),
        ("paddle.metric.metrics", "Accuracy"),
        ("paddle.distributed.fleet.dataset", "FileInstantDataset"),
    ],
)
def test_from_import(path: str, name: str) -> None:
    assert getattr(importlib.import_module(path), name)


def test_modules_are_there_without_an_import() -> None:
    assert paddle.nn.layer.conv.Conv2D is paddle.nn.Conv2D
    assert fluid.debugger.draw_block_graphviz
    assert fluid.contrib.utils.HDFSClient
    assert fluid.incubate.fleet.utils.hdfs.HDFSClient
    assert fluid.transpiler.details.program_utils.delete_ops


def test_communicator() -> None:
    communicator = fluid.communicator.Communicator(fluid.Program())
    assert not communicator.is_running()
    communicator.start()
    assert communicator.is_running()
    communicator.stop()
    assert not communicator.is_running()
    with pytest.raises(TypeError, match="program must be a Program, not str"):
        fluid.communicator.Communicator("program")


def test_helpers(capsys: pytest.CaptureFixture[str]) -> None:
    from paddle.distributed import utils

    assert len(utils.find_free_ports(2)) == 2

    @fluid.annotations.deprecated("1.0", "other")
    def old() -> int:
        """Return one."""
        return 1

    assert old() == 1
    assert "API old is deprecated since 1.0. Use other instead." in capsys.readouterr().err

    @fluid.wrapped_decorator.signature_safe_contextmanager
    def three() -> object:
        yield 3

    with three() as value:
        assert value == 3


@pytest.mark.parametrize(
    ("name", "inner", "op"),
    [
        ("LarsOptimizer", lambda: fluid.optimizer.Momentum(0.1, 0.9), "lars_momentum"),
        ("LambOptimizer", lambda: fluid.optimizer.Adam(0.1), "lamb"),
        ("DGCOptimizer", lambda: fluid.optimizer.Momentum(0.1, 0.9), "dgc"),
        ("GradientMergeOptimizer", lambda: fluid.optimizer.SGD(0.1), "conditional_block"),
    ],
)
def test_meta_optimizers_made_by_hand(name: str, inner: Any, op: str) -> None:
    from paddle.distributed import fleet
    from paddle.distributed.fleet import meta_optimizers

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 3))
        made = getattr(meta_optimizers, name)(inner())
        with pytest.raises(RuntimeError, match=f"call _set_basic_info before using a {name}"):
            made.minimize(loss)
        role = fleet.PaddleCloudRoleMaker(is_collective=True)
        made._set_basic_info(loss, role, None, fleet.DistributedStrategy())
        made.minimize(loss)
        assert op in [each.type for each in loss.block.ops]


def test_a_meta_optimizer_names_what_it_takes() -> None:
    from paddle.distributed import fleet
    from paddle.distributed.fleet.meta_optimizers import LarsOptimizer

    made = LarsOptimizer(fluid.optimizer.SGD(0.1))
    made._set_basic_info(None, None, None, fleet.DistributedStrategy())
    with pytest.raises(TypeError, match="takes a MomentumOptimizer optimizer, not SGDOptimizer"):
        made.minimize(None)


HIDDEN = """
import importlib, types
from paddle._aliases import ALIASES
for path in ALIASES:
    package, _, name = path.rpartition(".")
    found = vars(importlib.import_module(package)).get(name)
    assert found is None or isinstance(found, types.ModuleType), path
"""


def test_no_module_path_hides_a_name() -> None:
    # Importing a module makes it an attribute of its package, in place of what was called so; in a
    # process that has imported none yet.
    subprocess.run([sys.executable, "-c", HIDDEN], check=True, env=warm_start.environment())
