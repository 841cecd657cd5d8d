"""The errors for names that are not covered, which refer to the list of covered ones.

Every module of this package gets a `__getattr__` that rejects unknown names, and an `__all__` if it
has none; unknown modules are rejected. For names that are deliberately not covered the error gives
the reason.
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
from paddle._finder import names_in

LIST = "docs/paddle-compatibility.md"
# Names that modules of this package import for annotations and for these tables.
_TOOLS = frozenset({"Any", "Callable", "ModuleType", "exported", "missing", "narrow", "only"})

_EAGER = "eager mode (dygraph) is out of scope; eager models are written in PyTorch"
_CLOSED = "its servers were a closed binary; parameter_server.distribute_transpiler is covered"
_CLOSED_GPU = "BoxPS, servers on GPUs, was a closed library; InMemoryDataset is covered"
_CORE = "an internal of Paddle's C++ core, which FleetX does not have"
_SLIM = "model compression, which Paddle moved to PaddleSlim; quantize exported models instead"
_INSIDE = "an internal of Paddle's own optimizers and launchers; fleet does its work"
_TRAINERS = "settings of Paddle's C++ trainers; Executor.train_from_dataset runs datasets here"
_TABLES = (
    "cannot be used in Paddle 1.8.5 either, whose transpiler fails with is_distributed=True and "
    "which has no op merge_sparse_lookup_table; fleet.save_persistables and "
    "fleet.load_persistables keep the tables of servers"
)
_NAN = "FLAGS_check_nan_inf makes Executor.run check the results of every op"
_HAPI = "the high-level API (Model.fit, callbacks) is out of scope; programs train with Executor"
_RENDEZVOUS = (
    "how Paddle's processes find each other by HTTP and Gloo; fleet.init connects them here"
)
_OLD = "a helper from before Fluid, for files that no program of 1.8 reads"
_CUSTOM = "ops compiled for Paddle cannot be loaded; fluid.layers.py_func takes Python functions"
_PYRAMID = "its backward pass updates the table itself; hash with embedding trains hashed n-grams"


_XPU = "Kunlun devices are not supported; CPUPlace and CUDAPlace are covered"
_SAVER = "parts of auto_checkpoint; its train_epoch_range is covered"
_BUILDERS = "helpers of those who write layers for tensors as shapes; layers take such shapes here"
_STAGES = (
    "classes behind a switch; strategy.pipeline cuts programs by device_guard into the stages of "
    "several workers"
)
_TYPED = "gradients have their types when they are written; mixed_precision.decorate does all of it"
_REPORTED = "not written yet: load_inference_model reports variables that are missing or do not fit"
_ONE_SEED = "paddle.seed sets the one generator of a process; states of several are not kept yet"
_BY_HAND = "not made by hand yet: strategy.{} the same"


def _because(names_of: dict[str, str]) -> dict[str, str]:
    """Return the reason of each name, from the names by reason."""
    return {name: reason for reason, text in names_of.items() for name in names_in(text)}


# The reasons by prefix, of which the longest wins.
REASONS = _because(
    {
        _EAGER: """
        fluid.{dygraph imperative enable_dygraph enable_imperative save_dygraph load_dygraph}
        fluid.{core.VarBase ComplexVariable VarBase dygraph_utils framework.ComplexVariable}
        distributed.spawn
        framework.{DataParallel grad} imperative jit autograd grad DataParallel complex
        """,
        _HAPI: "Model hapi callbacks flops summary incubate.{distributed hapi vision}",
        _EAGER + " (programs use paddle.static.amp)": "amp",
        _EAGER + " (fleetx.static.export writes programs as ONNX)": "onnx",
        _SLIM: "fluid.contrib.{quantize QuantizeTranspiler slim Compressor}",
        _PYRAMID: "fluid.contrib.{search_ layers.search_ layers.nn.search_}pyramid_hash",
        _CORE: """
        fluid.{core core_avx multiprocess_utils dataloader.dataloader_iter.ParentWatchDog op}
        utils.op_version sysconfig check_import_scipy
        """,
        _CUSTOM: "{fluid fluid.framework utils}.load_op_library",
        _TRAINERS: """
        fluid.{DistMultiTrainer MultiTrainer PipelineTrainer TrainerDesc device_worker trainer_desc}
        fluid.{trainer_factory.TrainerFactory DataFeedDesc data_feed_desc}
        """,
        _CLOSED: """
        fluid.{distributed communicator.LargeScaleKV incubate.fleet.parameter_server.pslib}
        """,
        _INSIDE: """
        fluid.incubate.fleet.parameter_server.ir fluid.transpiler.details.{ufind vars_distributed}
        distributed.{cloud_utils launch launch_ps utils}
        distributed.fleet.base.{meta_optimizer_factory runtime_factory strategy_compiler}
        distributed.fleet.{cloud_utils launch launch_utils runtime}
        distributed.fleet.meta_optimizers.{ascend common.CollectiveHelper sharding}
        distributed.fleet.meta_optimizers.{graph_execution_optimizer meta_optimizer_base}
        distributed.fleet.meta_optimizers.parameter_server_{graph_optimizer optimizer}
        """,
        "two names without a comma between them in Paddle 2.0.0; both are covered": """
        device.is_compiled_with_xpuis_compiled_with_cuda
        """,
        _RENDEZVOUS: """
        distributed.fleet.{base.role_maker.Gloo utils.http_server}
        fluid.incubate.fleet.utils.http_server
        """,
        _XPU: "fluid.{XPUPlace framework.xpu_places xpu_places}",
        _TABLES: """
        fluid.contrib.{convert_dist_to_sparse_program load_persistables_for_increment}
        fluid.contrib.{load_persistables_for_inference utils.convert_dist_to_sparse_program}
        fluid.contrib.utils.{load_persistables_for_increment load_persistables_for_inference}
        fluid.contrib.utils.lookup_table_utils
        """,
        _CLOSED_GPU: "distributed.fleet.dataset.dataset.BoxPSDataset",
        _OLD: "utils.{image_util dump_config plotcurve preprocess_img preprocess_util}",
    }
)

# What a static-mode script could use and FleetX does not have yet; these count as missing.
OPEN = _because(
    {
        _TYPED: "fluid.contrib.mixed_precision.fp16_utils.update_role_var_grad",
        _NAN: "fluid.debugger.{prepare run}_fast_nan_inf_debug",
        _REPORTED: "fluid.incubate.fleet.utils.utils.check_saved_vars_try_dump",
        _STAGES: "distributed.fleet.meta_optimizers.pipeline_optimizer",
        _BY_HAND.format("fp16_allreduce does"): """
        distributed.fleet.meta_optimizers.fp16_allreduce_optimizer
        """,
        _BY_HAND.format("localsgd and strategy.adaptive_localsgd do"): """
        distributed.fleet.meta_optimizers.localsgd_optimizer
        """,
        _SAVER: """
        fluid.incubate.checkpoint.auto_checkpoint.{AutoCheckpointChecker ExeTrainStatus}
        fluid.incubate.checkpoint.checkpoint_saver
        """,
        _BUILDERS: """
        fluid.layers.utils.{check_shape convert_shape_to_list get_shape_tensor_inputs}
        fluid.layers.utils.{try_get_constant_shape_from_tensor try_set_static_shape_tensor}
        """,
        "without a kernel for CPUs in Paddle, so there is nothing to compare it with yet": """
        fluid.contrib.layers.nn.{batch_fc bilateral_slice correlation fused_bn_add_act}
        """,
        "mixed_precision.decorate and strategy.amp do all of it": """
        fluid.contrib.mixed_precision.fp16_utils.fp16_guard
        fluid.contrib.mixed_precision.fp16_utils.{cast_model_to_fp16 cast_parameters_to_fp16}
        """,
        _ONE_SEED: "fluid.generator",
        "an internal of Paddle: strategy.sharding does its work in programs": """
        distributed.fleet.meta_optimizers.sharding_optimizer
        """,
    }
)


def reason_for(name: str) -> str | None:
    """Return why a name, or its module, is not covered; None if there is no reason."""
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
    """A module of Paddle that this package does not have."""


def missing(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module for names that it does not have.

    It imports a module of that name, since Paddle has imported all of its modules, or returns what
    Paddle's module imports from another one, or else raises an error.
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
    """Return `__all__` of a module that re-exports names: the public ones among its globals.

    `without` lists those that the module imports for its own use, separated by spaces.
    """
    left_out = _TOOLS.union(without.split())
    return sorted(
        name
        for name, value in names.items()
        if not name.startswith("_")
        and name not in left_out
        and (modules or not isinstance(value, ModuleType))
    )


def only(names: dict[str, Any], listed: str) -> list[str]:
    """Remove all other public names from a module's globals; return the listed ones, sorted.

    A module imports all names of another one, for readers and type checkers, and keeps those that
    Paddle's module of this name has.
    """
    kept = listed.split()
    for name in [n for n in names if not n.startswith("_") and n not in (*kept, *_TOOLS)]:
        del names[name]
    unknown = [name for name in kept if name not in names]
    assert not unknown, f"{names['__name__']} lists names that do not exist: {unknown}"
    return sorted(kept)


class _Loader(SourceFileLoader):
    """Loads a module and completes it: `__getattr__`, and `__all__` if it re-exports names."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        names = vars(module)
        names.setdefault("__getattr__", missing(module.__name__))
        passed_on = exported(names)
        if passed_on:
            names.setdefault("__all__", passed_on)


def spec_of(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of a module of this package, None if there is none."""
    spec = PathFinder.find_spec(fullname, path)
    if spec is not None and isinstance(spec.loader, SourceFileLoader):
        spec.loader = _Loader(fullname, spec.loader.path)
    return spec


def file_source(fullname: str, path: Sequence[str] | None) -> ModuleSpec:
    """Return the spec of a module that has a file; others are not covered."""
    spec = spec_of(fullname, path)
    if spec is None:
        # Without `name`, so that `from package import missing` shows this message as well.
        raise NotCoveredError(sentence(fullname, "module"))
    return spec
