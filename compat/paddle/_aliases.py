"""Modules that only pass on names of another one, as rows of a table instead of files.

Paddle 2.x spreads what `paddle.nn`, `paddle.optimizer` and others offer over many small modules,
and scripts import from these too (`from paddle.nn.layer.conv import Conv2D`). Each such module has
a row here: its path, and the module that has the names. It is made when it is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from paddle._coverage import missing
from paddle._finder import Filled


def _rows(source: str, *paths: str) -> dict[str, str]:
    """Return rows for paths, separated by blanks, that pass on the names of one module."""
    return {f"paddle.{path}": f"paddle.{source}" for text in paths for path in text.split()}


# Which module has the names of a path.
ALIASES: dict[str, str] = {
    **_rows(
        "nn",
        "nn.layer nn.layer.activation nn.layer.common nn.layer.container nn.layer.conv",
        "nn.layer.distance nn.layer.extension nn.layer.layers nn.layer.loss nn.layer.norm",
        "nn.layer.pooling nn.layer.rnn nn.layer.transformer nn.layer.vision nn.decode",
        "nn.conv nn.loss nn.vision",
    ),
    **_rows(
        "nn.functional",
        "nn.functional.activation nn.functional.common nn.functional.conv nn.functional.extension",
        "nn.functional.input nn.functional.loss nn.functional.norm nn.functional.pooling",
        "nn.functional.vision",
    ),
    **_rows(
        "nn.initializer",
        "nn.initializer.assign nn.initializer.constant nn.initializer.kaiming",
        "nn.initializer.normal nn.initializer.uniform nn.initializer.xavier",
    ),
    **_rows(
        "optimizer",
        "optimizer.adadelta optimizer.adagrad optimizer.adam optimizer.adamax optimizer.adamw",
        "optimizer.lamb optimizer.momentum optimizer.optimizer optimizer.rmsprop optimizer.sgd",
    ),
    **_rows("metric", "metric.metrics"),
    **_rows("nn.utils", "nn.utils.weight_norm_hook"),
    **_rows("static", "static.input"),
    **_rows("static.nn", "static.nn.common static.nn.control_flow static.nn.metric"),
    **_rows("framework", "framework.io framework.framework framework.random"),
    **_rows("io", "fluid.dataloader.batch_sampler fluid.dataloader.dataloader_iter"),
    **_rows("io", "fluid.dataloader.dataset fluid.dataloader.sampler fluid.dataloader.fetcher"),
    **_rows("io", "fluid.dataloader.collate fluid.dataloader.worker"),
    **_rows("vision.datasets", "vision.datasets.cifar vision.datasets.flowers"),
    **_rows("vision.datasets", "vision.datasets.folder vision.datasets.mnist"),
    **_rows("vision.datasets", "vision.datasets.voc2012"),
    **_rows("text.datasets", "text.datasets.conll05 text.datasets.imdb text.datasets.imikolov"),
    **_rows("text.datasets", "text.datasets.movielens text.datasets.uci_housing"),
    **_rows("text.datasets", "text.datasets.wmt14 text.datasets.wmt16"),
    **_rows("vision.models", "vision.models.lenet vision.models.mobilenetv1"),
    **_rows("vision.models", "vision.models.mobilenetv2 vision.models.resnet vision.models.vgg"),
    **_rows("vision.transforms.functional", "vision.transforms.functional_cv2"),
    **_rows("vision.transforms.functional", "vision.transforms.functional_pil"),
    **_rows("vision.transforms.functional", "vision.transforms.functional_tensor"),
    **_rows("fluid.layers", "tensor.array"),
    **_rows("fluid.install_check", "utils.install_check"),
    **_rows("fluid.contrib.layers", "fluid.contrib.layers.nn fluid.contrib.layers.rnn_impl"),
    **_rows("fluid.contrib.layers", "fluid.contrib.layers.metric_op"),
    **_rows("fluid.contrib.decoder", "fluid.contrib.decoder.beam_search_decoder"),
    **_rows(
        "fluid.contrib.extend_optimizer",
        "fluid.contrib.extend_optimizer.extend_optimizer_with_weight_decay",
    ),
    **_rows("distributed", "distributed.parallel fluid.entry_attr distributed.entry_attr"),
    **_rows("distributed.fleet", "distributed.fleet.data_generator distributed.fleet.dataset"),
    **_rows("distributed.fleet", "distributed.fleet.data_generator.data_generator"),
    **_rows("fluid.dataset", "distributed.fleet.dataset.dataset"),
    **_rows(
        "distributed.fleet.meta_optimizers.replacing_optimizers",
        "distributed.fleet.meta_optimizers.dgc_optimizer",
        "distributed.fleet.meta_optimizers.gradient_merge_optimizer",
        "distributed.fleet.meta_optimizers.lamb_optimizer",
        "distributed.fleet.meta_optimizers.lars_optimizer",
    ),
    **_rows("fluid.transpiler", "distributed.transpiler"),
    **_rows(
        "fluid.transpiler.distribute_transpiler", "distributed.transpiler.distribute_transpiler"
    ),
    **_rows(
        "fluid.transpiler.ps_dispatcher",
        "fluid.incubate.fleet.parameter_server.ir.ps_dispatcher",
        "fluid.incubate.fleet.parameter_server.ir distributed.transpiler.ps_dispatcher",
    ),
    **_rows("fluid.transpiler.distribute_transpiler", "fluid.incubate.fleet.parameter_server.mode"),
    **_rows("incubate.optimizer", "incubate.optimizer.lookahead incubate.optimizer.modelaverage"),
    **_rows("fluid.contrib.reader", "incubate.reader"),
}


def _fill(module: ModuleType) -> None:
    source = importlib.import_module(ALIASES[module.__name__])
    module.__doc__ = source.__doc__
    names = [name for name in source.__all__ if f"{module.__name__}.{name}" not in ALIASES]
    vars(module).update({name: getattr(source, name) for name in names})
    vars(module)["__all__"] = names
    vars(module)["__getattr__"] = missing(module.__name__)


def alias_source(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return how to load a path of the table."""
    if fullname not in ALIASES:
        return None
    is_package = any(name.startswith(fullname + ".") for name in ALIASES)
    return ModuleSpec(fullname, Filled(_fill), is_package=is_package)
