"""paddle.static: static-graph programs as Paddle 2.x writes them, on FleetX."""

from fleetx.static.autodiff.backward import append_backward, gradients
from fleetx.static.building.param_attr import WeightNormParamAttr
from fleetx.static.graph.default_programs import (
    default_main_program,
    default_startup_program,
    device_guard,
    program_guard,
)
from fleetx.static.graph.input_spec import InputSpec
from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.io import (
    deserialize_persistables,
    deserialize_program,
    load,
    load_from_file,
    load_inference_model,
    load_program_state,
    load_vars,
    normalize_program,
    save,
    save_inference_model,
    save_to_file,
    save_vars,
    serialize_persistables,
    serialize_program,
    set_program_state,
)
from fleetx.static.layers import Print, accuracy, auc, create_global_var, create_parameter, py_func
from fleetx.static.layers.io import static_data as data
from fleetx.static.optimizer import ExponentialMovingAverage
from fleetx.static.run.compiled_program import (
    BuildStrategy,
    CompiledProgram,
    ExecutionStrategy,
    ParallelExecutor,
)
from fleetx.static.run.place import cpu_places, cuda_places, xpu_places
from fleetx.static.run.scope import Scope, global_scope, scope_guard
from paddle._coverage import exported, missing
from paddle.fluid.executor import Executor
from paddle.static import amp, io, nn

__all__ = [*exported(globals()), "io"]
__getattr__ = missing(__name__)
