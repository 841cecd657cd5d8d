"""The names that Paddle's layer modules import."""

from fleetx.static.building.argument_checks import (
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.param_attr import ParamAttr
from paddle.fluid import core, unique_name
from paddle.fluid.framework import (
    Variable,
    convert_np_dtype_to_dtype_,
    default_main_program,
    default_startup_program,
    device_guard,
    in_dygraph_mode,
)
from paddle.fluid.initializer import Constant
from paddle.fluid.layers import fill_constant, utils
