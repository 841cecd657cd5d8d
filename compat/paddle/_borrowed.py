"""Names that a module of Paddle has because it imports them: `paddle.fluid.layers.tensor.Variable`.

Scripts import such names from any module that has them. Every module below `paddle.fluid` resolves
the frequent ones to the module that defines them; they are in no `__all__`.
"""

from __future__ import annotations

import importlib
from typing import Any

from paddle._finder import names_in

_FLUID = "paddle.fluid"
# By home below `paddle.fluid`, the names that other modules of Paddle 1.8 import from it.
_NAMES = {
    "framework": "Block OpProtoHolder Operator Parameter Program Variable grad_var_name "
    "convert_np_dtype_to_dtype_ cpu_places cuda_places default_main_program program_guard "
    "default_startup_program device_guard dtype_is_floating in_dygraph_mode name_scope",
    "backward": "append_backward",
    "clip": "GradientClipBase error_clip_callback",
    "compiler": "CompiledProgram",
    "core": "VarDesc",
    "data_feeder": "DataFeeder check_dtype check_type check_variable_and_dtype convert_dtype",
    "distribute_lookup_table": "find_distributed_lookup_table",
    "executor": "Executor global_scope",
    "initializer": "Constant Initializer NumpyArrayInitializer Xavier",
    "layer_helper": "LayerHelper",
    "layer_helper_base": "LayerHelperBase",
    "layers.control_flow": "BlockGuard StaticRNN",
    "layers.layer_function_generator": "autodoc generate_activation_fn generate_layer_fn "
    "templatedoc",
    "layers.math_op_patch": "monkey_patch_variable",
    "layers.tensor": "assign cast concat fill_constant",
    "layers.utils": "assert_same_structure convert_to_list flatten is_sequence map_structure "
    "pack_sequence_as",
    "log_helper": "get_logger",
    "parallel_executor": "ParallelExecutor",
    "param_attr": "ParamAttr WeightNormParamAttr",
    "regularizer": "WeightDecayRegularizer append_regularization_ops",
    "transpiler.details.checkport": "wait_server_ready",
    "transpiler.details.program_utils": "delete_ops find_op_by_output_arg program_to_code",
    "transpiler.distribute_transpiler": "DistributedMode DistributeTranspiler "
    "DistributeTranspilerConfig same_or_split_var slice_variable",
    "transpiler.ps_dispatcher": "PSDispatcher RoundRobin",
    "wrapped_decorator": "wrap_decorator",
}
_HOMES = {name: f"{_FLUID}.{home}" for home, names in _NAMES.items() for name in names.split()}
_MODULES = {"paddle": "paddle", "cpt": "paddle.compat"} | {
    path.rpartition(".")[2]: path
    for path in names_in(
        "fluid fluid.{compiler core executor framework initializer io layers unique_name} "
        "fluid.layers.{control_flow detection nn ops sequence_lod tensor}"
    )
}


def borrowed(module: str, name: str) -> Any:
    """Return the object that a module of Paddle imports under a name; None if there is none."""
    if not module.startswith(_FLUID + ".") or module == f"{_FLUID}.core":  # core is C++
        return None
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    home = _HOMES.get(name)
    if home is None or home == module:
        return None
    return getattr(importlib.import_module(home), name)
