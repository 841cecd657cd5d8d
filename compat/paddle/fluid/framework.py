"""Programs and their parts."""

from fleetx.static import unique_name
from fleetx.static.graph.block import Block
from fleetx.static.graph.default_programs import (
    default_main_program,
    default_startup_program,
    device_guard,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from fleetx.static.graph.dtypes import VarType, convert_dtype, is_floating
from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.op_registry import EMPTY_NAME, GRAD_SUFFIX
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.protobuf.op_proto import OpProto, all_op_protos, op_proto
from fleetx.static.run.flags import get_flags, set_flags
from fleetx.static.run.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cpu_places,
    cuda_places,
    is_compiled_with_cuda,
)
from paddle._coverage import exported
from paddle._version_check import require_version
from paddle.fluid import core
from paddle.fluid.core import is_compiled_with_xpu
from paddle.fluid.op import get_all_op_protos

GRAD_VAR_SUFFIX = GRAD_SUFFIX
EMPTY_VAR_NAME = EMPTY_NAME
TEMP_VAR_NAME = "@TEMP@"
ZERO_VAR_SUFFIX = "@ZERO"


class OpProtoHolder:
    """The definitions of all ops by type."""

    _instance: "OpProtoHolder | None" = None

    def __init__(self) -> None:
        self.op_proto_map = {proto.type: proto for proto in all_op_protos()}

    @classmethod
    def instance(cls) -> "OpProtoHolder":
        """Return the only object of this class, created on first use."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def get_op_proto(self, type: str) -> OpProto:
        """Return the definition of an op, or raise a ValueError that names similar ones."""
        return op_proto(type)


def in_dygraph_mode() -> bool:
    """Return False: there is no eager mode."""
    return False


_non_static_mode = in_dygraph_mode
_in_legacy_dygraph = in_dygraph_mode


def _dygraph_tracer() -> None:
    return None


def _current_expected_place() -> CPUPlace | CUDAPlace:
    return CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """Return places in page-locked memory (one by default)."""
    return [CUDAPinnedPlace() for _ in range(device_count or 1)]


def convert_np_dtype_to_dtype_(np_dtype: object) -> VarType:
    """Return the VarType of a NumPy type or its name."""
    return convert_dtype(np_dtype)


def dtype_is_floating(dtype: object) -> bool:
    """Return whether an element type is a floating one."""
    return is_floating(dtype)


def _get_var(name: str, program: Program | None = None) -> Variable:
    return (program or default_main_program()).global_block().var(name)


def grad_var_name(var_name: str) -> str:
    """Return the name of a variable's gradient."""
    return var_name + GRAD_SUFFIX


__all__ = exported(
    globals(),
    without="CPUPlace CUDAPinnedPlace CUDAPlace EMPTY_NAME EMPTY_VAR_NAME GRAD_SUFFIX "
    "GRAD_VAR_SUFFIX OpProto TEMP_VAR_NAME VarType ZERO_VAR_SUFFIX all_op_protos convert_dtype "
    "is_floating op_proto",
)
