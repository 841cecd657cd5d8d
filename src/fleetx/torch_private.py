"""All private names of PyTorch that FleetX uses.

They may change, so look here first if a new PyTorch breaks something. They exist in PyTorch 2.4 and
newer: `make matrix` tests the oldest and the newest, and the README shows the versions of its last
run. `tests/test_torch_names.py` fails if a name is missing, or if another source file uses a
private name itself. Most are plain aliases without overhead.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from datetime import timedelta
from operator import attrgetter
from typing import Any, TypeVar

import torch
import torch._compile
import torch._decomp
import torch._meta_registrations
import torch._refs
import torch.distributed as dist
from torch.autograd.graph import _engine_run_backward
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree
from torch.utils._device import DeviceContext as _DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode

_Function = TypeVar("_Function", bound=Callable[..., Any])

# -- autograd --------------------------------------------------------------------------------------
# torch.set_grad_enabled without a context manager, which takes longer than some ops.
set_grad_enabled = torch._C._set_grad_enabled
# torch.autograd.grad without its argument checks.
engine_run_backward = _engine_run_backward
# The id of the running backward pass: -1 outside of one, another one for a nested pass.
current_graph_task_id = torch._C._current_graph_task_id
# Its `queue_callback` calls a function when the running backward pass ends.
execution_engine: Any = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]

# -- parts of objects ------------------------------------------------------------------------------
base_of = attrgetter("_base")  # the base of a view; None if the tensor owns its memory
sparse_values = torch.Tensor._values  # also of uncoalesced sparse tensors
sparse_indices = torch.Tensor._indices


def version_of(tensor: torch.Tensor) -> int:
    """Return the version counter of a tensor: the number of changes in place."""
    return tensor._version


def buffers_of(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the dict of a module's own buffers, including those that are None."""
    return module._buffers


def parameters_of(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """Return the dict of a module's own parameters, including those that are None."""
    return module._parameters


# -- lists of tensors in one call, as the optimizers of torch make them ----------------------------
foreach_add = torch._foreach_add
foreach_add_ = torch._foreach_add_
foreach_addcmul_ = torch._foreach_addcmul_
foreach_clamp_max_ = torch._foreach_clamp_max_
foreach_clamp_min_ = torch._foreach_clamp_min_
foreach_copy_ = torch._foreach_copy_
foreach_div = torch._foreach_div
foreach_lerp_ = torch._foreach_lerp_
foreach_mul = torch._foreach_mul
foreach_mul_ = torch._foreach_mul_
foreach_norm = torch._foreach_norm
foreach_sqrt = torch._foreach_sqrt
foreach_sub_ = torch._foreach_sub_
foreach_zero_ = torch._foreach_zero_
# The whole update of many parameters in one kernel.
fused_adam_ = torch._fused_adam_
fused_adamw_ = torch._fused_adamw_
fused_sgd_ = torch._fused_sgd_
fused_adagrad_: Any = getattr(torch, "_fused_adagrad_", None)  # for CPUs, in newer versions

# -- kernels without the Python wrappers of torch.nn.functional ------------------------------------
conv2d_without_onednn: Any = torch._C._nn.thnn_conv2d  # type: ignore[attr-defined]
hardtanh = torch._C._nn.hardtanh
elu = torch._C._nn.elu  # has the argument `scale`, which F.elu lacks
batch_norm_impl_index = torch._batch_norm_impl_index  # also returns the saved statistics

# -- modules and modes -----------------------------------------------------------------------------
BatchNormBase = _BatchNorm  # the base of BatchNorm1d, 2d, 3d and SyncBatchNorm
NormBase = _NormBase  # the base of batch and instance normalisation
current_function_modes = _get_current_function_mode_stack  # to enter the same modes again later
DeviceContext = _DeviceContext  # the mode behind `with torch.device(...)`
current_dispatch_mode = _get_current_dispatch_mode  # not None while a graph is traced
tree_leaves = _pytree.tree_leaves  # arguments of exported programs, flat and nested
tree_unflatten = _pytree.tree_unflatten


# -- functions: what they need may be absent, or slow to import ------------------------------------
def default_store() -> dist.Store:
    """Return the key-value store of the default process group."""
    return dist.distributed_c10d._get_default_store()


def default_group() -> dist.ProcessGroup:
    """Return the default process group."""
    return dist.distributed_c10d._get_default_group()


def backends() -> list[Any]:
    """Return the backends of all process groups of this process.

    Their owner determines when they are destroyed. In PyTorch 2.4, destroying a group with its
    backend waits for the backend's threads without releasing the GIL: a deadlock if one of them has
    to return a tensor to Python. A backend that is destroyed by itself releases it.
    """
    groups = dist.distributed_c10d._world.pg_map
    return [group._get_backend(device) for group in groups for device in group._device_types]


def gloo_can_complete_groups() -> bool:
    """Return whether `use_backend` works: not in PyTorch 2.4."""
    return hasattr(dist.ProcessGroup, "_set_default_backend")


def use_backend(group: dist.ProcessGroup, device: torch.device, gloo: Any) -> None:
    """Use Gloo for collectives that a process group written in Python does not define."""
    group._register_backend(device, dist.ProcessGroup.BackendType.GLOO, gloo)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)


# Methods of process groups that have other names since PyTorch 2.13.
def all_gather_single(group: Any, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Any:
    """Gather into one tensor."""
    method = getattr(group, "all_gather_single", None) or group._allgather_base
    return method(output, tensor) if opts is None else method(output, tensor, opts)


def reduce_scatter_single(group: Any, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Any:
    """Reduce and scatter one tensor."""
    method = getattr(group, "reduce_scatter_single", None) or group._reduce_scatter_base
    return method(output, tensor) if opts is None else method(output, tensor, opts)


def all_gather_coalesced(group: Any, outputs: Any, tensors: Any, opts: Any) -> Any:
    """Gather several tensors, each into one."""
    method = getattr(group, "all_gather_single_coalesced", None)
    method = method or group.allgather_into_tensor_coalesced
    return method(outputs, tensors) if opts is None else method(outputs, tensors, opts)


def reduce_scatter_coalesced(group: Any, outputs: Any, tensors: Any, opts: Any) -> Any:
    """Reduce and scatter several tensors."""
    method = getattr(group, "reduce_scatter_single_coalesced", None)
    method = method or group.reduce_scatter_tensor_coalesced
    return method(outputs, tensors) if opts is None else method(outputs, tensors, opts)


def all_to_all_single(group: Any, *arguments: Any) -> Any:
    """Send a part of one tensor to each member."""
    return (getattr(group, "all_to_all_single", None) or group.alltoall_base)(*arguments)


def work_of_future(future: Any) -> dist.Work:
    """Return a Work object that completes with the future."""
    return torch._C._distributed_c10d._create_work_from_future(future)  # type: ignore[attr-defined]


def not_compiled(function: _Function) -> _Function:
    """Exclude a function, and what it calls, from torch.compile, without overhead per call.

    `torch.compiler.disable` would import the compiler and add microseconds to every call.
    """
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        strategy = frames._FrameExecStrategy(skip, skip)
        frames.set_code_exec_strategy(function.__code__, strategy)  # type: ignore[attr-defined]
    return function


def number_groups_anew() -> None:
    """Reset the counter of process groups, as if this process had never created one.

    The counter is in the group's keys in the store, so all workers must have the same one; a group
    that could not be created has incremented it.
    """
    dist.distributed_c10d._world.group_count = 0


def set_group_timeout(timeout: timedelta) -> None:
    """Set the timeout of the default process group."""
    dist.distributed_c10d._set_pg_timeout(timeout)


def gloo_options(device: Any, timeout: timedelta) -> Any:
    """Return options for `dist.ProcessGroupGloo`: its device and its timeout."""
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices, options._timeout = [device], timeout
    return options


def running_ddp() -> Any:
    """Return the DistributedDataParallel whose forward is running; None outside of one."""
    return DistributedDataParallel._active_ddp_module


def has_step_pre_hook(optimizer: torch.optim.Optimizer, hook: Callable[..., Any]) -> bool:
    """Return whether a function is registered as a step pre-hook of an optimizer."""
    return hook in optimizer._optimizer_step_pre_hooks.values()


def note_step(optimizer: torch.optim.Optimizer) -> None:
    """Mark an optimizer as stepped; otherwise its schedulers warn."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


def end_loader_workers(batches: Any) -> None:
    """End the processes of a DataLoader's iterator.

    After an error, garbage collection would find their queues closed, and wait 5 s for each.
    """
    batches._shutdown_workers()


def compile_fx(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
    """Compile a graph of ATen ops by Inductor; the import takes seconds."""
    from torch._inductor.compile_fx import compile_fx as compile_graph

    return compile_graph(graph, examples)


# -- kernels for meta tensors ----------------------------------------------------------------------
# The attribute in which a function hidden from Dynamo stores its wrapped version; set by its first
# call, which imports torch._dynamo.
HIDDEN_AS = "__dynamo_disable"


def dynamo_is_loaded() -> bool:
    """Return whether `torch._dynamo` is imported; accessing the attribute would import it."""
    return "_dynamo" in vars(torch)


def functions_hidden_from_dynamo() -> list[Callable[..., Any]]:
    """Return the functions behind kernels for meta tensors that are hidden from Dynamo.

    Without any (another PyTorch may hide them in another way), running these kernels works too,
    but loads Dynamo.
    """
    hide: Any = torch._compile._disable_dynamo
    code = hide(lambda: None).__code__
    modules = (torch._refs, torch._refs.nn.functional, torch._refs.special, torch._refs.linalg)
    roots: list[Any] = [
        vars(m) for m in (*modules, torch._meta_registrations, torch._decomp.decompositions)
    ]
    roots += torch._decomp.global_decomposition_table.values()
    seen: dict[int, types.FunctionType] = {}
    for root in roots:
        for value in list(root.values()):
            _visit(value, seen)
    wrappers = [function for function in seen.values() if function.__code__ is code]
    return [inner for wrapper in wrappers for inner in _inner_functions(wrapper)]


def _visit(value: Any, seen: dict[int, types.FunctionType]) -> None:
    """Collect a function and the functions that it wraps."""
    if isinstance(value, types.FunctionType) and id(value) not in seen:
        seen[id(value)] = value
        for inner in _inner_functions(value):
            _visit(inner, seen)


def _inner_functions(function: types.FunctionType) -> Iterator[types.FunctionType]:
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not set yet
            continue
        if isinstance(value, types.FunctionType):
            yield value
