"""CompiledProgram, ParallelExecutor and their settings.

In Paddle these select another executor; FleetX lowers every program, so they are equivalent. The
only setting with an effect is `BuildStrategy.enable_auto_fusion`: compile the lowered step with
torch's compiler.
"""

from __future__ import annotations

import copy
import enum
from typing import Any

from fleetx.runtime.environment import cpu_num
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.run.place import CPUPlace, CUDAPlace
from fleetx.static.run.scope import Scope


class ReduceStrategy(enum.IntEnum):
    """How Paddle exchanges gradients between devices of one process; without effect."""

    AllReduce = 0
    Reduce = 1
    _NoReduce = 2


class GradientScaleStrategy(enum.IntEnum):
    """How Paddle scales the loss gradient over devices of one process; without effect."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


class _Settings:
    """Named settings with defaults; an unknown name is an error that lists the known ones."""

    _defaults: dict[str, Any] = {}

    def __init__(self) -> None:
        for name, value in self._defaults.items():
            object.__setattr__(self, name, copy.copy(value))

    def __setattr__(self, name: str, value: Any) -> None:
        if (
            name not in self._defaults
            and not name.startswith("_")
            and not hasattr(type(self), name)
        ):
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; its fields are "
                f"{', '.join(sorted(self._defaults))}."
            )
        default = self._defaults.get(name)
        if type(default) is int and not isinstance(value, int):
            raise TypeError(
                f"{type(self).__name__}.{name} takes an int, not {type(value).__name__}: {value!r}."
            )
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        changed = {
            k: getattr(self, k) for k in self._defaults if getattr(self, k) != self._defaults[k]
        }
        inside = ", ".join(f"{k}={v}" for k, v in changed.items())
        return f"{type(self).__name__}({inside})"


class BuildStrategy(_Settings):
    """How a program is built.

    `enable_auto_fusion` compiles the step. The other fields control Paddle's graph passes, which
    are always on (fused updates, early freeing of memory) or have no meaning with one process per
    device; they are accepted without effect.
    """

    ReduceStrategy = ReduceStrategy
    GradientScaleStrategy = GradientScaleStrategy
    enable_auto_fusion: bool
    _defaults = {
        "enable_auto_fusion": False,
        "reduce_strategy": ReduceStrategy.AllReduce,
        "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
        "debug_graphviz_path": "",
        "enable_sequential_execution": False,
        "remove_unnecessary_lock": True,
        "num_trainers": 1,
        "trainer_id": 0,
        "trainers_endpoints": [],
        "nccl_comm_num": 1,
        "bkcl_comm_num": 1,
        "use_hierarchical_allreduce": False,
        "hierarchical_allreduce_inter_nranks": 0,
        "hierarchical_allreduce_exter_nranks": 0,
        "fuse_elewise_add_act_ops": False,
        "fuse_bn_act_ops": False,
        "fuse_bn_add_act_ops": True,
        "fuse_relu_depthwise_conv": False,
        "fuse_broadcast_ops": None,
        "fuse_all_optimizer_ops": False,
        "fuse_all_reduce_ops": None,
        "fuse_gemm_epilogue": False,
        "fused_attention": False,
        "fused_feedforward": False,
        "sync_batch_norm": False,
        "memory_optimize": None,
        "enable_inplace": True,
        "enable_addto": False,
        "enable_backward_optimizer_op_deps": True,
        "cache_runtime_context": False,
        "cache_expected_kernel": False,
        "is_distribution": False,
        "async_mode": False,
        "mkldnn_enabled_op_types": set(),
        "fix_op_run_order": False,
        "allow_cuda_graph_capture": False,
    }


class ExecutionStrategy(_Settings):
    """How a program is run; except for `_dry_run` the fields are accepted without effect."""

    class ExecutorType(enum.IntEnum):
        """Kinds of executors in Paddle; without effect."""

        Default = 0
        Experimental = 1

    _dry_run: bool  # compute nothing

    _defaults = {
        "num_threads": 0,
        "num_iteration_per_drop_scope": 100,
        "num_iteration_per_run": 1,
        "use_thread_barrier": False,
        "allow_op_delay": False,
        "use_device": 0,
        "use_cuda": True,
        "use_experimental_executor": False,
        "_dry_run": False,
    }


def plain_program(program: Any) -> Any:
    """Return the program of a CompiledProgram; return anything else unchanged."""
    return getattr(program, "_program", program)


class CompiledProgram:
    """A program with build settings, for `Executor.run`."""

    def __init__(self, program_or_graph: Any, build_strategy: BuildStrategy | None = None) -> None:
        inner = plain_program(program_or_graph)
        if not isinstance(inner, Program):
            raise TypeError(
                f"CompiledProgram takes a Program, not {type(program_or_graph).__name__}."
            )
        self._program = inner
        self._build_strategy = build_strategy
        self._exec_strategy: ExecutionStrategy | None = None
        self._is_data_parallel = False
        self._loss_name: str | None = None
        self._share_vars_from: CompiledProgram | None = None
        self._compiled_for: tuple[Scope, Any] | None = None
        # A run without feed takes this many batches from the program's readers, as one batch.
        self._place_count = 1

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Any = None,
    ) -> CompiledProgram:
        """Store the settings; the program itself is unchanged, as a process has one device."""
        if self._is_data_parallel:
            raise ArgumentError("with_data_parallel can be called only once per CompiledProgram.")
        if build_strategy is not None:
            self._build_strategy = build_strategy
        self._exec_strategy = exec_strategy
        self._is_data_parallel = True
        if places is None:
            self._place_count = cpu_num()
        else:
            self._place_count = len(places) if isinstance(places, list | tuple) else 1
        self._loss_name = loss_name
        self._share_vars_from = share_vars_from
        return self

    @property
    def only_built(self) -> bool:
        """Whether runs compute nothing (`ExecutionStrategy._dry_run`)."""
        return self._exec_strategy is not None and self._exec_strategy._dry_run

    def _compile(self, scope: Scope, place: Any) -> CompiledProgram:
        """Bind the program to a scope and a place; it cannot be moved to others."""
        if self._compiled_for is None:
            other = self._share_vars_from
            if other is not None and not other._is_data_parallel:
                raise ValueError("share_vars_from was not compiled by with_data_parallel.")
            if other is not None and other._compiled_for is None:
                raise ValueError("share_vars_from has no variables to share: run it first.")
            self._compiled_for = (scope, place)
        if self._compiled_for[0] is not scope or self._compiled_for[1] != place:
            raise ValueError("The program was compiled for another scope or place.")
        return self

    def _with_inference_optimize(self, config: Any = None) -> CompiledProgram:
        return self


class ParallelExecutor:
    """Runs one program; the 1.x spelling of `Executor.run(CompiledProgram(...))`."""

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        from fleetx.static.run.executor import Executor

        self._scope = scope
        self._program = CompiledProgram(
            main_program if main_program is not None else default_main_program(), build_strategy
        ).with_data_parallel(loss_name, exec_strategy=exec_strategy)
        self._has_run = False
        self._executor = Executor(CUDAPlace(0) if use_cuda else CPUPlace(), unknown_feed="warn")

    def run(
        self,
        fetch_list: list[Variable | str],
        feed: Any = None,
        feed_dict: Any = None,
        return_numpy: bool = True,
    ) -> Any:
        """Run the program once; see `Executor.run`."""
        self._has_run = True
        return self._executor.run(
            self._program,
            feed=feed if feed is not None else feed_dict,
            fetch_list=fetch_list,
            scope=self._scope,
            return_numpy=return_numpy,
        )

    @property
    def device_count(self) -> int:
        """The number of places: CPU_NUM."""
        return self._program._place_count

    def drop_local_exe_scopes(self) -> None:
        """Do nothing: runs create no local scopes."""
        self._has_run = False

    def _need_create_local_exe_scopes(self) -> bool:
        return not self._has_run
