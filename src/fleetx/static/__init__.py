"""A small static-graph front end on torch: layers build a Program, an Executor runs it.

Read `graph/program.py` for what a program is, `graph/op_registry.py` for how an op is defined,
`lowering/` for how a program becomes a torch function. The modules beside the folders are those
that scripts import by name.
"""

from fleetx import collector

with collector.paused():
    from fleetx.static import (
        clip,
        initializer,
        io,
        layers,
        lr,
        nets,
        ops,
        optimizer,
        readers,
        regularizer,
        unique_name,
    )
    from fleetx.static.autodiff.backward import append_backward, gradients
    from fleetx.static.building.param_attr import ParamAttr, WeightNormParamAttr
    from fleetx.static.errors import EOFException
    from fleetx.static.graph.block import Block
    from fleetx.static.graph.default_programs import (
        default_main_program,
        default_startup_program,
        device_guard,
        program_guard,
    )
    from fleetx.static.graph.dtypes import VarType, convert_dtype
    from fleetx.static.graph.name_scope import name_scope
    from fleetx.static.graph.operator import Operator
    from fleetx.static.graph.program import Program
    from fleetx.static.graph.variable import Parameter, Variable
    from fleetx.static.graph.variable_math import install as install_operators
    from fleetx.static.graph.variable_methods import install as install_methods
    from fleetx.static.layers.io import static_data as data
    from fleetx.static.run.compiled_program import (
        BuildStrategy,
        CompiledProgram,
        ExecutionStrategy,
        ParallelExecutor,
    )
    from fleetx.static.run.executor import ExecutionError, Executor
    from fleetx.static.run.place import (
        CPUPlace,
        CUDAPinnedPlace,
        CUDAPlace,
        cpu_places,
        cuda_places,
        is_compiled_with_cuda,
    )
    from fleetx.static.run.scope import Scope, global_scope, scope_guard
    from fleetx.static.shapes.infer_shape import ShapeError

install_operators(Variable)
install_methods(Variable)

__all__ = [
    "Block",
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "EOFException",
    "ExecutionError",
    "ExecutionStrategy",
    "Executor",
    "Operator",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "Scope",
    "ShapeError",
    "VarType",
    "Variable",
    "WeightNormParamAttr",
    "append_backward",
    "clip",
    "convert_dtype",
    "cpu_places",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "global_scope",
    "gradients",
    "initializer",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "lr",
    "name_scope",
    "nets",
    "ops",
    "optimizer",
    "program_guard",
    "readers",
    "regularizer",
    "scope_guard",
    "unique_name",
]
