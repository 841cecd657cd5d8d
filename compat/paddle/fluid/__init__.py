"""paddle.fluid: static-graph programs as Paddle 1.x and 2.0 write them, on FleetX."""

from fleetx.static.readers.lod_tensor import LoDTensor, LoDTensorArray
from fleetx.static.run.place import CPUPlace, CUDAPinnedPlace, CUDAPlace
from fleetx.static.run.scope import Scope
from paddle._coverage import exported
from paddle.fluid import (
    average,
    backward,
    clip,
    compiler,
    contrib,
    core,
    data_feeder,
    dataloader,
    dataset,
    dygraph,
    evaluator,
    executor,
    framework,
    incubate,
    initializer,
    input,
    install_check,
    io,
    layer_helper,
    layers,
    lod_tensor,
    metrics,
    nets,
    optimizer,
    parallel_executor,
    param_attr,
    profiler,
    reader,
    regularizer,
    trainer_factory,
    transpiler,
    unique_name,
)
from paddle.fluid._memory import memory_optimize, release_memory
from paddle.fluid.backward import append_backward, gradients
from paddle.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from paddle.fluid.data import data
from paddle.fluid.data_feeder import DataFeeder
from paddle.fluid.dataset import DatasetFactory, InMemoryDataset, QueueDataset
from paddle.fluid.executor import Executor, global_scope, scope_guard
from paddle.fluid.framework import (
    Program,
    Variable,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    default_main_program,
    default_startup_program,
    device_guard,
    get_flags,
    in_dygraph_mode,
    is_compiled_with_cuda,
    name_scope,
    program_guard,
    require_version,
    set_flags,
)
from paddle.fluid.incubate import data_generator
from paddle.fluid.input import embedding, one_hot
from paddle.fluid.io import (
    DataLoader,
    PyReader,
    load,
    load_program_state,
    save,
    set_program_state,
)
from paddle.fluid.lod_tensor import create_lod_tensor, create_random_int_lodtensor
from paddle.fluid.parallel_executor import ParallelExecutor
from paddle.fluid.param_attr import ParamAttr, WeightNormParamAttr
from paddle.fluid.transpiler import (
    DistributeTranspiler,
    DistributeTranspilerConfig,
    HashName,
    RoundRobin,
)


def disable_dygraph() -> None:
    """Leave eager mode, which is never on."""


disable_imperative = disable_dygraph
learning_rate_decay = layers.learning_rate_scheduler
Tensor = LoDTensor
_Scope = Scope


__all__ = exported(globals(), modules=True)
