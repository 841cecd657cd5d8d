"""What happens on a name that is not covered: one sentence that says so and where the list is.

Every module of this package gets a `__getattr__` that refuses unknown names, and an `__all__` if it
has none; unknown modules are refused. Names that are left out on purpose have
a sentence of their own.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from paddle._borrowed import borrowed

LIST = "docs/paddle-compatibility.md"
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
_NAN = "FLAGS_check_nan_inf makes Executor.run check the results of every op"
_HAPI = "the high-level API (Model.fit, callbacks) is out of scope; programs train with Executor"
_RENDEZVOUS = (
    "how Paddle's processes find each other by HTTP and Gloo; fleet.init connects them here"
)
_OLD = "a helper from before Fluid, for files that no program of 1.8 reads"
_CUSTOM = "ops compiled for Paddle cannot be loaded; fluid.layers.py_func takes Python functions"
_PYRAMID = "its backward pass updates the table itself; hash with embedding trains hashed n-grams"


def _because(reason: str, *names: str) -> dict[str, str]:
    """Return rows for names, separated by blanks, that are missing for one reason."""
    return {f"paddle.{name}": reason for text in names for name in text.split()}


_XPU = "Kunlun devices are not supported; CPUPlace and CUDAPlace are covered"
_SAVER = "parts of auto_checkpoint; its train_epoch_range is covered"
_BUILDERS = "helpers of those who write layers for tensors as shapes; layers take such shapes here"

# Longest prefix wins. What `paddle.fluid.dygraph.Linear` is refused with, and why.
REASONS = {
    **_because(
        _EAGER,
        "fluid.dygraph fluid.imperative fluid.enable_dygraph fluid.enable_imperative",
        "fluid.save_dygraph fluid.load_dygraph fluid.core.VarBase imperative jit autograd grad",
        "DataParallel complex distributed.init_parallel_env",
        "distributed.parallel.init_parallel_env distributed.spawn fluid.ComplexVariable",
        "fluid.VarBase fluid.dygraph_utils fluid.framework.ComplexVariable framework.DataParallel",
        "framework.grad",
    ),
    **_because(
        _HAPI,
        "Model hapi callbacks flops summary incubate.distributed incubate.hapi incubate.vision",
    ),
    **_because(_EAGER + " (programs use paddle.static.amp)", "amp"),
    **_because(_EAGER + " (fleetx.static.export writes programs as ONNX)", "onnx"),
    **_because(
        _SLIM,
        "fluid.contrib.quantize fluid.contrib.QuantizeTranspiler fluid.contrib.slim",
        "fluid.contrib.Compressor",
    ),
    **_because(
        _PYRAMID,
        "fluid.contrib.search_pyramid_hash fluid.contrib.layers.search_pyramid_hash",
        "fluid.contrib.layers.nn.search_pyramid_hash",
    ),
    **_because(
        _CORE,
        "fluid.core fluid.core_avx fluid.multiprocess_utils",
        "fluid.dataloader.dataloader_iter.ParentWatchDog fluid.op utils.op_version sysconfig",
        "check_import_scipy",
    ),
    **_because(
        _CUSTOM,
        "fluid.load_op_library fluid.framework.load_op_library utils.load_op_library",
    ),
    **_because(
        _TRAINERS,
        "fluid.DistMultiTrainer fluid.MultiTrainer fluid.PipelineTrainer fluid.TrainerDesc",
        "fluid.device_worker fluid.trainer_desc fluid.trainer_factory.TrainerFactory",
        "fluid.DataFeedDesc fluid.data_feed_desc",
    ),
    **_because(
        _CLOSED,
        "fluid.distributed fluid.communicator.LargeScaleKV",
        "fluid.incubate.fleet.parameter_server.pslib",
    ),
    **_because(
        _INSIDE,
        "fluid.incubate.fleet.parameter_server.ir fluid.transpiler.details.ufind",
        "fluid.transpiler.details.vars_distributed distributed.cloud_utils",
        "distributed.fleet.base.meta_optimizer_factory distributed.fleet.base.runtime_factory",
        "distributed.fleet.base.strategy_compiler distributed.fleet.cloud_utils",
        "distributed.fleet.launch distributed.fleet.launch_utils",
        "distributed.fleet.meta_optimizers.ascend",
        "distributed.fleet.meta_optimizers.common.CollectiveHelper",
        "distributed.fleet.meta_optimizers.graph_execution_optimizer",
        "distributed.fleet.meta_optimizers.meta_optimizer_base",
        "distributed.fleet.meta_optimizers.parameter_server_graph_optimizer",
        "distributed.fleet.meta_optimizers.parameter_server_optimizer",
        "distributed.fleet.meta_optimizers.sharding distributed.fleet.runtime distributed.launch",
        "distributed.launch_ps distributed.utils",
    ),
    **_because(
        "two names without a comma between them in Paddle 2.0.0; both are covered",
        "device.is_compiled_with_xpuis_compiled_with_cuda",
    ),
    **_because(
        _RENDEZVOUS,
        "distributed.fleet.base.role_maker.Gloo distributed.fleet.utils.http_server",
        "fluid.incubate.fleet.utils.http_server",
    ),
    **_because(_XPU, "fluid.XPUPlace fluid.framework.xpu_places fluid.xpu_places"),
    **_because(_CLOSED_GPU, "distributed.fleet.dataset.dataset.BoxPSDataset"),
    **_because(
        "a client of Baidu's own file system; LocalFS is covered",
        "distributed.fs_wrapper.BDFS",
    ),
    **_because(
        _OLD,
        "utils.image_util utils.dump_config utils.plotcurve utils.preprocess_img",
        "utils.preprocess_util",
    ),
}

# What a static-mode script could use and FleetX does not have yet; these count as missing.
OPEN = {
    **_because(
        _TABLES,
        "fluid.contrib.convert_dist_to_sparse_program",
        "fluid.contrib.load_persistables_for_increment",
        "fluid.contrib.load_persistables_for_inference",
        "fluid.contrib.utils.convert_dist_to_sparse_program",
        "fluid.contrib.utils.load_persistables_for_increment",
        "fluid.contrib.utils.load_persistables_for_inference",
        "fluid.contrib.utils.lookup_table_utils",
    ),
    **_because(
        "gradients have their types when they are written; mixed_precision.decorate does all of it",
        "fluid.contrib.mixed_precision.fp16_utils.update_role_var_grad",
    ),
    **_because(
        _NAN,
        "fluid.debugger.prepare_fast_nan_inf_debug fluid.debugger.run_fast_nan_inf_debug",
    ),
    **_because(
        "not written yet: load_inference_model reports variables that are missing or do not fit",
        "fluid.incubate.fleet.utils.utils.check_saved_vars_try_dump",
    ),
    **_because(
        "programs are not cut into stages on several workers yet; models that need more memory "
        "train with strategy.recompute and strategy.gradient_merge",
        "distributed.fleet.meta_optimizers.pipeline_optimizer",
    ),
    **_because(
        "layers whose parameters are split over workers are not written yet",
        "distributed.collective.split",
    ),
    **_because(
        "not made by hand yet: strategy.fp16_allreduce does the same",
        "distributed.fleet.meta_optimizers.fp16_allreduce_optimizer",
    ),
    **_because(
        "not made by hand yet: strategy.localsgd and strategy.adaptive_localsgd do the same",
        "distributed.fleet.meta_optimizers.localsgd_optimizer",
    ),
    **_because(
        _SAVER,
        "fluid.incubate.checkpoint.auto_checkpoint.AutoCheckpointChecker",
        "fluid.incubate.checkpoint.auto_checkpoint.ExeTrainStatus",
        "fluid.incubate.checkpoint.checkpoint_saver",
    ),
    **_because(
        _BUILDERS,
        "fluid.layers.utils.check_shape fluid.layers.utils.convert_shape_to_list",
        "fluid.layers.utils.get_shape_tensor_inputs",
        "fluid.layers.utils.try_get_constant_shape_from_tensor",
        "fluid.layers.utils.try_set_static_shape_tensor",
    ),
    **_because(
        "without a kernel for CPUs in Paddle, so there is nothing to compare it with yet",
        "fluid.contrib.layers.nn.batch_fc fluid.contrib.layers.nn.bilateral_slice",
        "fluid.contrib.layers.nn.correlation fluid.contrib.layers.nn.fused_bn_add_act",
    ),
    **_because(
        "mixed_precision.decorate and strategy.amp do all of it",
        "fluid.contrib.mixed_precision.amp_nn",
        "fluid.contrib.mixed_precision.fp16_utils.cast_model_to_fp16",
        "fluid.contrib.mixed_precision.fp16_utils.cast_parameters_to_fp16",
        "fluid.contrib.mixed_precision.fp16_utils.fp16_guard",
    ),
    **_because(
        "fluid.optimizer.Momentum has the same updates, with regularization as ops of their own",
        "fluid.contrib.optimizer",
    ),
    **_because(
        "paddle.seed sets the one generator of a process; states of several are not kept yet",
        "fluid.generator",
    ),
    **_because(
        "nn.functional.interpolate resizes lines; nn.BiRNN runs two cells",
        "fluid.layers.nn.resize_linear fluid.layers.rnn.birnn",
    ),
    **_because(
        "the modes are DistributedMode of fluid.transpiler.distribute_transpiler",
        "fluid.incubate.fleet.parameter_server.mode.PSMode",
    ),
    **_because(
        "states of programs are not sharded over workers yet",
        "distributed.fleet.meta_optimizers.sharding_optimizer",
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

    It imports a module of that name, as Paddle has imported all of its own, or returns what
    Paddle's module imports from another one, or else refuses.
    """

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        obj = sys.modules.get(module)  # noqa: TID251 - the module that lacks the name
        if hasattr(obj, "__path__"):
            with contextlib.suppress(NotCoveredError):
                return importlib.import_module(f"{module}.{name}")
        found = borrowed(module, name)
        if found is not None:
            return found
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


def file_source(fullname: str, path: Sequence[str] | None) -> ModuleSpec:
    """Return how to load a module that has a file; one that has none is not covered."""
    spec = spec_of(fullname, path)
    if spec is None:
        # Without a `name`, so that `from package import missing` shows this sentence as well.
        raise NotCoveredError(sentence(fullname, "module"))
    return spec
