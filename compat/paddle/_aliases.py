"""Modules that only re-export names of another one, as rows of a table instead of files.

Paddle 2.x spreads the names of `paddle.nn`, `paddle.optimizer` and others over many small modules,
and scripts import from these too (`from paddle.nn.layer.conv import Conv2D`). Each such module has
a row: its path, and the module that has the names. It is created when it is imported, like the
rows of `_passed_on`, which re-export modules of FleetX.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from paddle._coverage import missing
from paddle._finder import Filled, names_in
from paddle._passed_on import PASSED_ON, fill

# The paths that re-export a module.
_PATHS = {
    "nn": """
    nn.layer nn.layer.{activation common container conv distance extension layers loss norm}
    nn.layer.{pooling rnn transformer vision} nn.{decode conv loss vision}
    """,
    "nn.functional": """
    nn.functional.{activation common conv extension input loss norm pooling vision}
    """,
    "nn.initializer": "nn.initializer.{assign constant kaiming normal uniform xavier}",
    "optimizer": """
    optimizer.{adadelta adagrad adam adamax adamw lamb momentum optimizer rmsprop sgd}
    """,
    "metric": "metric.metrics",
    "nn.utils": "nn.utils.weight_norm_hook",
    "static": "static.input",
    "static.nn": "static.nn.{common control_flow metric}",
    "framework": "framework.{io framework}",
    "io": """
    fluid.dataloader.{batch_sampler dataloader_iter dataset sampler fetcher collate worker}
    """,
    "vision.datasets": "vision.datasets.{cifar flowers folder mnist voc2012}",
    "text.datasets": "text.datasets.{conll05 imdb imikolov movielens uci_housing wmt14 wmt16}",
    "vision.models": "vision.models.{lenet mobilenetv1 mobilenetv2 resnet vgg}",
    "vision.transforms.functional": "vision.transforms.functional_{cv2 pil tensor}",
    "fluid.layers": "tensor.array",
    "fluid.install_check": "utils.install_check",
    "fluid.contrib.layers": "fluid.contrib.layers.{nn rnn_impl metric_op}",
    "fluid.contrib.decoder": "fluid.contrib.decoder.beam_search_decoder",
    "fluid.contrib.extend_optimizer": """
    fluid.contrib.extend_optimizer.extend_optimizer_with_weight_decay
    """,
    "distributed": "distributed.parallel {fluid distributed}.entry_attr",
    "distributed.fleet": """
    distributed.fleet.{data_generator data_generator.data_generator}
    """,
    "fluid.dataset": "distributed.fleet.dataset distributed.fleet.dataset.dataset",
    "distributed.fleet.meta_optimizers.replacing_optimizers": """
    distributed.fleet.meta_optimizers.{dgc gradient_merge lamb lars}_optimizer
    """,
    "fluid.transpiler": "distributed.transpiler",
    "fluid.transpiler.distribute_transpiler": "distributed.transpiler.distribute_transpiler",
    "fluid.transpiler.ps_dispatcher": """
    fluid.incubate.fleet.parameter_server.{ir.ps_dispatcher ir} distributed.transpiler.ps_dispatcher
    """,
    "incubate.optimizer": "incubate.optimizer.{lookahead modelaverage}",
    "fluid.contrib.reader": "incubate.reader",
}
# The module that a path re-exports.
ALIASES = {path: f"paddle.{source}" for source, text in _PATHS.items() for path in names_in(text)}


def _fill(module: ModuleType) -> None:
    path = module.__name__
    if path in PASSED_ON:
        fill(module)
    else:
        source = importlib.import_module(ALIASES[path])
        module.__doc__ = source.__doc__
        names = [name for name in source.__all__ if f"{path}.{name}" not in ALIASES]
        vars(module).update({name: getattr(source, name) for name in names}, __all__=names)
    vars(module)["__getattr__"] = missing(path)


def alias_source(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of a path of one of the tables."""
    if fullname not in ALIASES and fullname not in PASSED_ON:
        return None
    is_package = any(name.startswith(fullname + ".") for name in ALIASES)
    return ModuleSpec(fullname, Filled(_fill), is_package=is_package)
