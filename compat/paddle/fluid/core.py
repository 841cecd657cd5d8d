"""The names of Paddle's C++ core that scripts use."""

from collections.abc import Iterable
from typing import Any

import torch

from fleetx.checkpoint.program_desc import AttrType
from fleetx.comm import device
from fleetx.static.autodiff.grad_desc import has_gradient
from fleetx.static.errors import EnforceNotMet, EOFException
from fleetx.static.graph.dtypes import VarType, to_torch
from fleetx.static.graph.op_registry import EMPTY_NAME, GRAD_SUFFIX, get_op, has_op, op_types
from fleetx.static.graph.operator import OpRole
from fleetx.static.io.predictor import (
    AnalysisConfig,
    AnalysisPredictor,
    PaddleBuf,
    PaddleDType,
    PaddleTensor,
    ZeroCopyTensor,
    create_paddle_predictor,
)
from fleetx.static.protobuf.desc_view import BlockDescView as BlockDesc
from fleetx.static.protobuf.desc_view import OpDescView as OpDesc
from fleetx.static.protobuf.desc_view import ProgramDescView as ProgramDesc
from fleetx.static.protobuf.var_desc_view import VarDescView
from fleetx.static.readers.lod_tensor import LoDTensor, LoDTensorArray
from fleetx.static.run.flags import all_flags as globals
from fleetx.static.run.place import AnyPlace as Place
from fleetx.static.run.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    is_compiled_with_cuda,
)
from fleetx.static.run.scope import Scope
from fleetx.static.run.scope import ScopeVariable as Variable
from fleetx.static.run.selected_rows import SelectedRows
from fleetx.static.shapes.lod_values import get_fetch_variable, set_feed_variable
from paddle._coverage import exported

Tensor = LoDTensor
_Scope = Scope


class VarDesc(VarDescView):
    """The description of a variable; `VarDesc.VarType` holds kinds and element types."""

    VarType = VarType


class op_proto_and_checker_maker:
    """Names of the attributes that every op has."""

    OpRole = OpRole

    @staticmethod
    def kOpRoleAttrName() -> str:
        """Return the name of the attribute with the op's role."""
        return "op_role"

    @staticmethod
    def kOpRoleVarAttrName() -> str:
        """Return the name of the attribute with the parameter and gradient of an update op."""
        return "op_role_var"

    @staticmethod
    def kOpNameScopeAttrName() -> str:
        """Return the name of the attribute with the name scope."""
        return "op_namescope"

    @staticmethod
    def kOpCreationCallstackAttrName() -> str:
        """Return the name of the attribute with the place in the script."""
        return "op_callstack"

    @staticmethod
    def kOpDeviceAttrName() -> str:
        """Return the name of the attribute with the device."""
        return "op_device"


def get_cuda_device_count() -> int:
    """Return the number of CUDA devices."""
    return device.gpu_count()


def is_compiled_with_dist() -> bool:
    """Return whether several processes can train together."""
    return torch.distributed.is_available()


def is_compiled_with_mkldnn() -> bool:
    """Return False: Paddle's MKL-DNN kernels are not available."""
    return False


def is_compiled_with_brpc() -> bool:
    """Return False: Paddle's brpc transport is not available."""
    return False


def is_compiled_with_xpu() -> bool:
    """Return False: Kunlun devices are not supported."""
    return False


def is_compiled_with_npu() -> bool:
    """Return False: Ascend devices are not supported."""
    return False


def _get_all_register_op_kernels() -> dict[str, list[str]]:
    return {type: ["float", "double"] for type in op_types()}


def op_support_gpu(op_type: str) -> bool:
    """Return whether an op runs on CUDA: every registered op does."""
    return has_op(op_type)


def has_infer_inplace(op_type: str) -> bool:
    """Return False: ops overwrite an input only if the program does."""
    return False


def has_grad_op_maker(op_type: str) -> bool:
    """Return whether an op has a gradient op."""
    return has_gradient(op_type)


def get_grad_op_desc(
    op_desc: OpDesc, no_grad_set: set[str], grad_sub_block: list[BlockDesc]
) -> tuple[list[OpDesc], dict[str, str]]:
    """Return the gradient ops of an op, and the variable of each gradient that they write."""
    return op_desc.gradient_ops(no_grad_set)


def set_num_threads(num_threads: int) -> None:
    """Set the number of threads of an op."""
    torch.set_num_threads(num_threads)


def size_of_dtype(dtype: VarType) -> int:
    """Return the size of an element in bytes."""
    return to_torch(dtype).itemsize


def from_dlpack(dltensor: Any) -> LoDTensor:
    """Return a tensor that shares memory with a DLPack capsule or an object that exports one."""
    return LoDTensor(torch.from_dlpack(dltensor))


def get_op_attrs_default_value(op_type: str | bytes) -> dict[str, Any]:
    """Return the attributes of an op with their defaults."""
    name = op_type.decode() if isinstance(op_type, bytes) else op_type
    return {attr: settings.default for attr, settings in get_op(name).attrs.items()}


def _set_eager_deletion_mode(threshold: int, fraction: float, fast_mode: bool) -> None:
    """Do nothing: values are freed after their last use."""


def _set_fuse_parameter_group_size(size: int) -> None:
    """Do nothing: the strategy sets the bucket size of gradients."""


def _set_fuse_parameter_memory_size(size: float) -> None:
    """Do nothing: the strategy sets the bucket size of gradients."""


def _create_loaded_parameter(vars: Iterable[Any], scope: Scope, executor: Any) -> None:
    for variable in vars:
        values = torch.zeros(tuple(variable.shape), dtype=to_torch(variable.dtype))
        scope.var(variable.name).get_tensor().set(values)


def prune_backward(program: ProgramDesc) -> tuple[ProgramDesc, dict[int, int]]:
    """Return a program without its backward and update ops, and the old indices of its blocks."""
    pruned = program.prune_backward()
    return pruned, {number: number for number in range(pruned.num_blocks())}


def kEmptyVarName() -> str:
    """Return the name of the empty variable."""
    return EMPTY_NAME


def kGradVarSuffix() -> str:
    """Return the suffix of gradients' names."""
    return GRAD_SUFFIX


empty_var_name = kEmptyVarName
grad_var_suffix = kGradVarSuffix

# `globals` is one of Paddle's names in this module, hence `vars`.
__all__ = exported(
    vars(),
    without="EMPTY_NAME GRAD_SUFFIX Iterable OpRole VarDescView VarType get_op has_gradient "
    "has_op op_types to_torch",
)
