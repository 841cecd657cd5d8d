"""Everything that the package `paddle` itself offers."""

from paddle import version
from paddle._aliases import alias_source
from paddle._coverage import exported, file_source
from paddle._eager import eager_source
from paddle._finder import SOURCES

SOURCES[:] = [eager_source, alias_source, file_source]

from fleetx.static.building.param_attr import ParamAttr  # noqa: E402
from fleetx.static.graph.dtypes import VarType  # noqa: E402
from fleetx.static.graph.variable import Variable as Tensor  # noqa: E402
from fleetx.static.run.place import CPUPlace, CUDAPinnedPlace, CUDAPlace  # noqa: E402
from fleetx.static.tensor import *  # noqa: E402, F403
from fleetx.static.tensor import __all__ as _tensor_names  # noqa: E402

# Other modules, such as `distributed` and `vision`, are imported when they are first used.
from paddle import (  # noqa: E402
    common_ops_import,
    compat,
    device,
    fluid,
    framework,
    io,
    linalg,
    metric,
    nn,
    optimizer,
    reader,
    regularizer,
    static,
    tensor,
)
from paddle.batch import batch  # noqa: E402
from paddle.device import (  # noqa: E402
    get_cudnn_version,
    get_device,
    is_compiled_with_cuda,
    is_compiled_with_npu,
    is_compiled_with_xpu,
    set_device,
)
from paddle.framework import (  # noqa: E402
    disable_static,
    enable_static,
    get_cuda_rng_state,
    get_default_dtype,
    get_flags,
    in_dynamic_mode,
    load,
    no_grad,
    save,
    seed,
    set_cuda_rng_state,
    set_default_dtype,
    set_flags,
    set_printoptions,
)
from paddle.version import full_version as __version__  # noqa: E402

bool = VarType.BOOL
uint8 = VarType.UINT8
int8 = VarType.INT8
int16 = VarType.INT16
int32 = VarType.INT32
int64 = VarType.INT64
float16 = VarType.FP16
bfloat16 = VarType.BF16
float32 = VarType.FP32
float64 = VarType.FP64
complex64 = VarType.COMPLEX64
complex128 = VarType.COMPLEX128
dtype = VarType


__all__ = exported(globals(), without="SOURCES VarType alias_source eager_source file_source")
