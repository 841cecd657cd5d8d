"""What happens on a name that is not covered: one sentence that says so and where the list is.

A finder gives every module of this package a `__getattr__` that refuses unknown names, and an
`__all__` if it has none; it refuses unknown modules itself. Names that are left out on purpose have
a sentence of their own.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

LIST = "docs/paddle-compatibility.md"
PACKAGE = "paddle"
# What modules of this package import in order to describe themselves.
_TOOLS = frozenset({"exported", "missing", "narrow"})

_EAGER = "eager mode (dygraph) is out of scope; eager models are written in PyTorch"
_CLOSED = "its servers were a closed binary; parameter_server.distribute_transpiler is covered"
_CLOSED_GPU = "BoxPS, servers on GPUs, was a closed library; InMemoryDataset is covered"
_CORE = "an internal of Paddle's C++ core, which does not exist here"
_SLIM = "model compression, which Paddle moved to PaddleSlim; quantize exported models instead"
_INSIDE = "an internal of Paddle's own optimizers and launchers; fleet does its work"
_TRAINERS = "settings of Paddle's C++ trainers; Executor.train_from_dataset runs datasets here"
_TABLES = (
    "files of distributed look-up tables are not read yet; fleet.save_persistables and "
    "fleet.load_persistables keep the tables of these servers"
)
_NAN = "not written yet: Paddle's kernels check numbers by a flag, which has no effect here"
_HAPI = "the high-level API (Model.fit, callbacks) is out of scope; programs train with Executor"
_RENDEZVOUS = (
    "how Paddle's processes find each other by HTTP and Gloo; fleet.init connects them here"
)
_OLD = "a helper from before Fluid, for files that no program of 1.8 reads"
_CUSTOM = "ops compiled for Paddle cannot be loaded; fluid.layers.py_func takes Python functions"
_PYRAMID = "its backward pass updates the table itself; hash with embedding trains hashed n-grams"

# Longest prefix wins. What `paddle.fluid.dygraph.Linear` is refused with, and why.
REASONS = {
    "paddle.fluid.dygraph": _EAGER,
    "paddle.fluid.imperative": _EAGER,
    "paddle.fluid.enable_dygraph": _EAGER,
    "paddle.fluid.enable_imperative": _EAGER,
    "paddle.fluid.save_dygraph": _EAGER,
    "paddle.fluid.load_dygraph": _EAGER,
    "paddle.fluid.core.VarBase": _EAGER,
    "paddle.imperative": _EAGER,
    "paddle.jit": _EAGER,
    "paddle.autograd": _EAGER,
    "paddle.grad": _EAGER,
    "paddle.Model": _HAPI,
    "paddle.DataParallel": _EAGER,
    "paddle.hapi": _HAPI,
    "paddle.callbacks": _HAPI,
    "paddle.flops": _HAPI,
    "paddle.summary": _HAPI,
    "paddle.amp": _EAGER + " (programs use paddle.static.amp)",
    "paddle.complex": _EAGER,
    "paddle.distributed.init_parallel_env": _EAGER,
    "paddle.distributed.parallel.init_parallel_env": _EAGER,
    "paddle.distributed.spawn": _EAGER,
    "paddle.fluid.ComplexVariable": _EAGER,
    "paddle.fluid.VarBase": _EAGER,
    "paddle.fluid.dygraph_utils": _EAGER,
    "paddle.fluid.framework.ComplexVariable": _EAGER,
    "paddle.framework.DataParallel": _EAGER,
    "paddle.framework.grad": _EAGER,
    "paddle.incubate.distributed": _HAPI,
    "paddle.incubate.hapi": _HAPI,
    "paddle.incubate.vision": _HAPI,
    "paddle.onnx": _EAGER + " (fleetx.static.export writes programs as ONNX)",
    "paddle.fluid.contrib.quantize": _SLIM,
    "paddle.fluid.contrib.QuantizeTranspiler": _SLIM,
    "paddle.fluid.contrib.slim": _SLIM,
    "paddle.fluid.contrib.Compressor": _SLIM,
    **dict.fromkeys(
        (
            "paddle.fluid.contrib.search_pyramid_hash",
            "paddle.fluid.contrib.layers.search_pyramid_hash",
            "paddle.fluid.contrib.layers.nn.search_pyramid_hash",
        ),
        _PYRAMID,
    ),
    "paddle.fluid.core": _CORE,
    "paddle.fluid.core_avx": _CORE,
    "paddle.fluid.multiprocess_utils": _CORE,
    "paddle.fluid.dataloader.dataloader_iter.ParentWatchDog": _CORE,
    "paddle.fluid.op": _CORE,
    "paddle.utils.op_version": _CORE,
    "paddle.sysconfig": _CORE,
    "paddle.check_import_scipy": _CORE,
    "paddle.fluid.load_op_library": _CUSTOM,
    "paddle.fluid.framework.load_op_library": _CUSTOM,
    "paddle.utils.load_op_library": _CUSTOM,
    "paddle.fluid.DistMultiTrainer": _TRAINERS,
    "paddle.fluid.MultiTrainer": _TRAINERS,
    "paddle.fluid.PipelineTrainer": _TRAINERS,
    "paddle.fluid.TrainerDesc": _TRAINERS,
    "paddle.fluid.device_worker": _TRAINERS,
    "paddle.fluid.trainer_desc": _TRAINERS,
    "paddle.fluid.trainer_factory.TrainerFactory": _TRAINERS,
    "paddle.fluid.DataFeedDesc": _TRAINERS,
    "paddle.fluid.data_feed_desc": _TRAINERS,
    "paddle.fluid.distributed": _CLOSED,
    "paddle.fluid.communicator.LargeScaleKV": _CLOSED,
    "paddle.fluid.incubate.fleet.parameter_server.ir": _INSIDE,
    "paddle.fluid.transpiler.details.ufind": _INSIDE,
    "paddle.fluid.transpiler.details.vars_distributed": _INSIDE,
    "paddle.distributed.cloud_utils": _INSIDE,
    "paddle.distributed.fleet.base.meta_optimizer_factory": _INSIDE,
    "paddle.distributed.fleet.base.runtime_factory": _INSIDE,
    "paddle.distributed.fleet.base.strategy_compiler": _INSIDE,
    "paddle.distributed.fleet.cloud_utils": _INSIDE,
    "paddle.distributed.fleet.launch": _INSIDE,
    "paddle.distributed.fleet.launch_utils": _INSIDE,
    "paddle.distributed.fleet.meta_optimizers.ascend": _INSIDE,
    "paddle.distributed.fleet.meta_optimizers.common.CollectiveHelper": _INSIDE,
    "paddle.distributed.fleet.meta_optimizers.graph_execution_optimizer": _INSIDE,
    "paddle.distributed.fleet.meta_optimizers.meta_optimizer_base": _INSIDE,
    "paddle.distributed.fleet.meta_optimizers.parameter_server_graph_optimizer": _INSIDE,
    "paddle.distributed.fleet.meta_optimizers.parameter_server_optimizer": _INSIDE,
    "paddle.distributed.fleet.meta_optimizers.sharding": _INSIDE,
    "paddle.distributed.fleet.runtime": _INSIDE,
    "paddle.distributed.launch": _INSIDE,
    "paddle.distributed.launch_ps": _INSIDE,
    "paddle.distributed.utils": _INSIDE,
    "paddle.device.is_compiled_with_xpuis_compiled_with_cuda": (
        "two names without a comma between them in Paddle 2.0.0; both are covered"
    ),
    "paddle.distributed.fleet.base.role_maker.Gloo": _RENDEZVOUS,
    "paddle.distributed.fleet.utils.http_server": _RENDEZVOUS,
    "paddle.distributed.fleet.dataset.dataset.BoxPSDataset": _CLOSED_GPU,
    "paddle.distributed.fs_wrapper.BDFS": "a client of Baidu's own file system; LocalFS is covered",
    "paddle.utils.image_util": _OLD,
    "paddle.utils.dump_config": _OLD,
    "paddle.utils.plotcurve": _OLD,
    "paddle.utils.preprocess_img": _OLD,
    "paddle.utils.preprocess_util": _OLD,
    "paddle.fluid.incubate.fleet.parameter_server.pslib": _CLOSED,
}


# What a static-mode script could use and FleetX does not have yet; these count as missing.
OPEN = {
    "paddle.fluid.contrib.convert_dist_to_sparse_program": _TABLES,
    "paddle.fluid.contrib.load_persistables_for_increment": _TABLES,
    "paddle.fluid.contrib.load_persistables_for_inference": _TABLES,
    "paddle.fluid.contrib.utils.convert_dist_to_sparse_program": _TABLES,
    "paddle.fluid.contrib.utils.load_persistables_for_increment": _TABLES,
    "paddle.fluid.contrib.utils.load_persistables_for_inference": _TABLES,
    "paddle.fluid.contrib.utils.lookup_table_utils": _TABLES,
    "paddle.fluid.contrib.mixed_precision.fp16_utils.update_role_var_grad": (
        "gradients have their types when they are written; mixed_precision.decorate does all of it"
    ),
    "paddle.fluid.debugger.prepare_fast_nan_inf_debug": _NAN,
    "paddle.fluid.debugger.run_fast_nan_inf_debug": _NAN,
    "paddle.fluid.incubate.fleet.utils.utils.check_saved_vars_try_dump": (
        "not written yet: load_inference_model reports variables that are missing or do not fit"
    ),
    "paddle.fluid.optimizer.PipelineOptimizer": (
        "programs are not cut into stages on several workers yet"
    ),
    "paddle.fluid.transpiler.collective": (
        "not made by hand yet: fleet.init(is_collective=True) writes the same ops into programs"
    ),
    "paddle.distributed.collective.split": (
        "layers whose parameters are split over workers are not written yet"
    ),
    "paddle.distributed.fleet.meta_optimizers.fp16_allreduce_optimizer": (
        "not made by hand yet: strategy.fp16_allreduce does the same"
    ),
    "paddle.distributed.fleet.meta_optimizers.localsgd_optimizer": (
        "not made by hand yet: strategy.localsgd and strategy.adaptive_localsgd do the same"
    ),
    "paddle.distributed.fleet.meta_optimizers.pipeline_optimizer": (
        "programs are not cut into stages on several workers yet"
    ),
    "paddle.distributed.fleet.meta_optimizers.sharding_optimizer": (
        "states of programs are not sharded over workers yet"
    ),
}


def reason_for(name: str) -> str | None:
    """Return why a name, or the module it would be in, is left out; None where nothing is said."""
    return _of_longest_prefix(REASONS, name)


def _of_longest_prefix(sentences: dict[str, str], name: str) -> str | None:
    parts = name.split(".")
    for end in range(len(parts), 1, -1):
        found = sentences.get(".".join(parts[:end]))
        if found is not None:
            return found
    return None


def sentence(name: str, kind: str = "name") -> str:
    """Return the sentence for a full name such as `paddle.fluid.layers.foo`."""
    reason = reason_for(name) or _of_longest_prefix(OPEN, name)
    why = f": {reason}" if reason else ""
    return f"{name} is not covered by FleetX{why}. {LIST} lists every {kind} that is."


class NotCoveredError(ModuleNotFoundError):
    """A module of Paddle's that this package does not have."""


def missing(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module for names that it does not have.

    It imports a module of that name, as Paddle has imported all of its own, or else refuses.
    """

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        obj = sys.modules.get(module)  # noqa: TID251 - the module that lacks the name
        if hasattr(obj, "__path__"):
            with contextlib.suppress(NotCoveredError):
                return importlib.import_module(f"{module}.{name}")
        raise AttributeError(sentence(f"{module}.{name}"), name=name, obj=obj)

    return __getattr__


def exported(names: dict[str, Any], *, modules: bool = False, without: str = "") -> list[str]:
    """Return `__all__` of a module that passes names on: the public ones among its globals.

    `without` lists those that the module imports for its own use, separated by blanks.
    """
    left_out = _TOOLS.union(without.split())
    return sorted(
        name
        for name, value in names.items()
        if not name.startswith("_")
        and name not in left_out
        and (modules or not isinstance(value, ModuleType))
    )


class _Loader(SourceFileLoader):
    """Loads a module and completes it: `__getattr__`, and `__all__` if it passes names on."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        names = vars(module)
        names.setdefault("__getattr__", missing(module.__name__))
        passed_on = exported(names)
        if passed_on:
            names.setdefault("__all__", passed_on)


def spec_of(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return how to load a module of this package, None if there is none."""
    spec = PathFinder.find_spec(fullname, path)
    if spec is not None and isinstance(spec.loader, SourceFileLoader):
        spec.loader = _Loader(fullname, spec.loader.path)
    return spec


class _Finder(MetaPathFinder):
    """Finds the modules of this package; one that does not exist is not covered."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGE + "."):
            return None
        spec = spec_of(fullname, path)
        if spec is None:
            # Without a `name`, so that `from package import missing` shows this sentence as well.
            raise NotCoveredError(sentence(fullname, "module"))
        return spec


def install_finder() -> None:
    """Install the finder of this package's modules, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
