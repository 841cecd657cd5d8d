"""Flags named `FLAGS_...` that scripts set and read.

Most control memory pools and kernels of Paddle's engine: they are stored and returned without
effect. With `FLAGS_check_nan_inf`, also as an environment variable, the executor checks the
results of every op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetx.runtime.environment import paddle_flag

# Flags that scripts read before they set them, with Paddle's defaults.
_flags: dict[str, Any] = {
    "FLAGS_allocator_strategy": "auto_growth",
    "FLAGS_benchmark": False,
    "FLAGS_check_nan_inf": paddle_flag("check_nan_inf", "0").lower() in ("1", "true"),
    "FLAGS_cpu_deterministic": False,
    "FLAGS_cudnn_deterministic": False,
    "FLAGS_cudnn_exhaustive_search": False,
    "FLAGS_eager_delete_tensor_gb": 0.0,
    "FLAGS_enable_parallel_graph": False,
    "FLAGS_enable_rpc_profiler": False,
    "FLAGS_fraction_of_cpu_memory_to_use": 1.0,
    "FLAGS_fraction_of_gpu_memory_to_use": 0.92,
    "FLAGS_free_idle_chunk": False,
    "FLAGS_free_when_no_cache_hit": False,
    "FLAGS_fuse_parameter_groups_size": 1,
    "FLAGS_fuse_parameter_memory_size": -1.0,
    "FLAGS_init_allocated_mem": False,
    "FLAGS_initial_cpu_memory_in_mb": 500,
    "FLAGS_inner_op_parallelism": 0,
    "FLAGS_memory_fraction_of_eager_deletion": 1.0,
    "FLAGS_paddle_num_threads": 1,
    "FLAGS_pe_profile_fname": "",
    "FLAGS_print_sub_graph_dir": "",
    "FLAGS_reader_queue_speed_test_mode": False,
    "FLAGS_sort_sum_gradient": False,
    "FLAGS_sync_nccl_allreduce": True,
    "FLAGS_use_mkldnn": False,
    "FLAGS_use_pinned_memory": True,
    "FLAGS_use_system_allocator": False,
}

# Private in Paddle: scripts access them only through `core.globals()`.
_PRIVATE = frozenset({"FLAGS_free_idle_chunk", "FLAGS_free_when_no_cache_hit", "FLAGS_use_mkldnn"})


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set the values of flags."""
    if not isinstance(flags, Mapping):
        raise TypeError(f"flags of set_flags must be a dict, not {type(flags).__name__}.")
    for name, value in flags.items():
        _check(name)
        _flags[name] = value


def get_flags(flags: str | Sequence[str]) -> dict[str, Any]:
    """Return the values of flags by name."""
    if not isinstance(flags, str | list | tuple):
        raise TypeError(
            f"flags of get_flags must be a name or a list of names, not {type(flags).__name__}."
        )
    names = [flags] if isinstance(flags, str) else flags
    for name in names:
        _check(name)
        if name not in _flags or name in _PRIVATE:
            reason = "it is private" if name in _PRIVATE else "it was never set"
            raise ValueError(f"get_flags cannot return {name}: {reason}.")
    return {name: _flags[name] for name in names}


def checks_numbers() -> bool:
    """Return whether the results of ops are checked for NaN and infinity."""
    return bool(_flags["FLAGS_check_nan_inf"])


def all_flags() -> dict[str, Any]:
    """Return all flags; the dictionary itself, so that changes are kept."""
    return _flags


def _check(name: Any) -> None:
    if not isinstance(name, str) or not name.startswith("FLAGS_"):
        raise ValueError(f"a flag is named 'FLAGS_...', not {name!r}.")
