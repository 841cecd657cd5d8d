"""The `*_configs` of a DistributedStrategy: for each technique its settings, as tables of fields.

Names and defaults are those of Paddle 2.x; a row says since which version the key exists and what
it means. Keys that Paddle has dropped again are kept, numbered from 1000.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from fleetx.fleet.strategy_fields import Effect, Field, unknown_name

Rows = tuple[Field[Any], ...]
_none, _refused = Effect.NONE, Effect.REFUSED


def _strings(number: int, name: str, meaning: str, **more: Any) -> Field[list[str]]:
    return Field(number, [], meaning, name, element=str, **more)


AMP: Rows = (
    Field(1, 32768.0, "loss scale at the start", "init_loss_scaling", above=0),
    Field(2, 1000, "steps without overflow before the scale grows", "incr_every_n_steps", least=1),
    Field(3, 2, "overflows in a row before the scale shrinks", "decr_every_n_nan_or_inf", least=1),
    Field(4, 2.0, "factor by which the scale grows", "incr_ratio", above=0),
    Field(5, 0.8, "factor by which the scale shrinks", "decr_ratio", above=0),
    Field(6, True, "change the scale during training", "use_dynamic_loss_scaling"),
    _strings(7, "custom_white_list", "ops that also run in half precision"),
    _strings(8, "custom_black_list", "ops that also run in single precision"),
    _strings(9, "custom_black_varnames", "variables whose ops run in single precision"),
    Field(10, False, "parameters in float16", "use_pure_fp16", since="2.1", effect=_refused),
    Field(
        11, True, "pure float16 only inside fp16_guard", "use_fp16_guard", since="2.1", effect=_none
    ),
    Field(
        12, False, "optimizer state in float16", "use_optimizer_fp16", since="2.4", effect=_refused
    ),
    Field(
        13,
        False,
        "bfloat16 instead of float16, no loss scale; parameters stay float32",
        "use_pure_bf16",
        since="2.5",
    ),
    Field(
        1001,
        "auto",
        "the type of half precision: float16, bfloat16 (no loss scale), or auto: bfloat16 on CPUs, "
        "float16 on GPUs, with the loss scale that is set",
        "dtype",
        since="fleetx",
        choices=("auto", "float16", "bfloat16"),
    ),
)
RECOMPUTE: Rows = (
    _strings(1, "checkpoints", "activations to keep: names, Variables, module names or classes"),
    Field(2, False, "keep checkpoints in the memory of the host", "enable_offload"),
    Field(
        3,
        [],
        "shape of the checkpoints for offload; shapes are known here",
        "checkpoint_shape",
        element=int,
        effect=_none,
    ),
    Field(4, False, "let the planner choose", "enable_tuning", since="2.4", effect=_none),
)
_AVERAGE: Rows = (
    Field(1001, False, "average the optimizer's momenta too", "average_momentum", since="fleetx"),
    Field(
        1002,
        0.0,
        "momentum of the outer steps from one average to the next (SlowMo, DiLoCo)",
        "outer_momentum",
        since="fleetx",
        least=0,
    ),
    Field(1003, 1.0, "rate of the outer steps", "outer_lr", since="fleetx", above=0),
    Field(1004, False, "outer momentum as Nesterov's", "outer_nesterov", since="fleetx"),
)
LOCALSGD: Rows = (
    Field(1, 1, "local steps between two averages", "k_steps", least=1),
    Field(2, 1, "average every step up to this one", "begin_step", least=0),
    *_AVERAGE,
    Field(
        1005,
        False,
        "average in every run of fleet.main_program: the script itself counts (1.x)",
        "every_run",
        since="fleetx",
    ),
)
ADAPTIVE_LOCALSGD: Rows = (
    Field(1, 1, "local steps between averages at first", "init_k_steps", least=1),
    Field(2, 1, "average every step up to this one", "begin_step", least=0),
    *_AVERAGE,
)
GRADIENT_MERGE: Rows = (
    Field(1, 1, "steps whose gradients are merged", "k_steps", least=1),
    Field(2, True, "divide the merged gradient by k_steps", "avg"),
)
GRADIENT_CLIP: Rows = (
    Field(
        1001, 0.0, "largest norm of all gradients together; 0 for none", "norm", since="fleetx",
        least=0,
    ),
    Field(1002, 2.0, "order of that norm", "norm_type", since="fleetx", above=0),
    Field(
        1003, 0.0, "largest magnitude of an element; 0 for none", "value", since="fleetx", least=0
    ),
)  # fmt: skip
DGC: Rows = (
    Field(1, 0, "step from which gradients are compressed", "rampup_begin_step", least=0),
    Field(2, 1, "steps over which the sparsities are gone through", "rampup_step", least=1),
    Field(
        3, [], "shares of gradient entries held back; [0.999] if empty", "sparsity", element=float
    ),
    Field(
        1001,
        0.0,
        "norm to which each worker clips a compressed gradient, times workers ** -0.5; 0 for none",
        "local_clip_norm",
        since="fleetx",
        least=0,
    ),
    Field(
        1002,
        False,
        "what is held back keeps the learning rate of its own step, not that of the step that "
        "sends it",
        "keep_rate",
        since="fleetx",
    ),
)
LARS: Rows = (
    Field(1, 0.001, "trust coefficient", "lars_coeff"),
    Field(2, 0.0005, "weight decay", "lars_weight_decay"),
    Field(3, 0.0, "added to the denominator", "epsilon"),
    _strings(4, "exclude_from_weight_decay", "parts of names of parameters without decay"),
)
LAMB: Rows = (
    Field(1, 0.01, "weight decay", "lamb_weight_decay"),
    _strings(2, "exclude_from_weight_decay", "ends of names of parameters without decay"),
)
AUTO: Rows = (
    Field(1, 5, "steps to measure of each candidate", "steps", since="fleetx", least=1),
    Field(2, 120.0, "seconds after which no other is tried", "time_limit", since="fleetx", above=0),
    Field(
        3, 0.0, "MB that a step may need; 0 for what there is", "memory_limit_mb", since="fleetx",
        least=0,
    ),
    _strings(
        4, "techniques", "techniques to try although they change the mathematics", since="fleetx"
    ),
    Field(5, "", "file that remembers the choice", "file", since="fleetx"),
)  # fmt: skip
PIPELINE: Rows = (
    Field(1, 1, "samples per micro batch", "micro_batch_size", since="2.1", effect=_refused),
    Field(2, 1, "micro batches per step", "accumulate_steps", since="2.1", effect=_refused),
    Field(
        3,
        "1F1B",
        "order of forward and backward",
        "schedule_mode",
        since="2.1",
        effect=_refused,
        choices=("1F1B", "F-then-B"),
    ),
    Field(4, True, "shapes between stages stay", "p2p_cache_shape", since="2.2", effect=_refused),
    Field(
        5, True, "split what stages send", "enable_partial_send_recv", since="2.3", effect=_refused
    ),
    Field(1001, 1, "micro batches (2.0)", "micro_batch", effect=_refused),
)
SHARDING: Rows = (
    Field(
        1,
        "segment_broadcast_MB",
        "how a program is cut",
        "sharding_segment_strategy",
        since="2.1",
        effect=_refused,
    ),
    Field(2, 32.0, "size of a segment", "segment_broadcast_MB", since="2.1", effect=_refused),
    _strings(3, "segment_anchors", "names at which to cut", since="2.1", effect=_refused),
    Field(4, 8, "workers that share one copy", "sharding_degree", since="2.1", effect=_refused),
    Field(5, 1, "tensor parallel degree", "mp_degree", since="2.1", effect=_refused),
    Field(6, 1, "data parallel degree", "dp_degree", since="2.1", effect=_refused),
    Field(7, False, "data parallel between groups", "hybrid_dp", effect=_refused),
    Field(8, 1, "steps to merge", "gradient_merge_acc_step", since="2.1", effect=_refused),
    Field(
        9, False, "optimizer state on the host", "optimize_offload", since="2.1", effect=_refused
    ),
    Field(
        10,
        False,
        "all-reduce in the update",
        "pp_allreduce_in_optimize",
        since="2.2",
        effect=_refused,
    ),
    Field(11, 1, "pipeline degree", "pp_degree", since="2.1", effect=_refused),
    Field(12, False, "cast in the update", "optimize_cast", since="2.2", effect=_refused),
    Field(
        13,
        False,
        "shard the update only",
        "_dp_as_optimizer_sharding",
        since="2.2",
        effect=_refused,
    ),
    Field(14, 1, "what is sharded", "stage", since="2.3", effect=_refused),
    Field(15, False, "let the planner choose", "enable_tuning", since="2.3", effect=_refused),
    Field(
        16,
        False,
        "communicate on the stream of compute",
        "use_calc_stream",
        since="2.4",
        effect=_refused,
    ),
    Field(1001, 32.0, "size of a fused broadcast (2.0)", "fuse_broadcast_MB", effect=_refused),
    Field(1002, 8, "workers per group (2.0)", "sharding_group_size", effect=_refused),
)
A_SYNC: Rows = (
    Field(
        1,
        -1,
        "0 synchronous or asynchronous by a_sync, from 1 on geo; -1 undecided",
        "k_steps",
        least=-1,
    ),
    Field(2, 1, "gradients merged before they are sent", "max_merge_var_num", least=1),
    Field(3, 16, "gradients that may wait to be sent", "send_queue_size", least=1),
    Field(4, False, "a thread of its own receives parameters", "independent_recv_thread"),
    Field(5, 1, "sends before parameters are fetched", "min_send_grad_num_before_recv", least=0),
    Field(6, 1, "threads that send", "thread_pool_size", least=1, effect=_none),
    Field(7, 1, "times 10 ms to wait for more gradients", "send_wait_times", least=0),
    Field(8, False, "split while sending", "runtime_split_send_recv", effect=_none),
    Field(9, True, "wait for the servers at the start", "launch_barrier"),
    Field(10, "cpu", "device of heterogeneous workers", "heter_worker_device_guard", effect=_none),
    Field(
        11,
        10,
        "steps between two learning rates of a schedule",
        "lr_decay_steps",
        least=1,
        effect=_none,
    ),
    Field(12, 0, "tables on the GPU", "use_ps_gpu", since="2.1", effect=_none),
    Field(
        1001,
        -1,
        "steps by which parameters may lag behind in asynchronous training; -1 any number",
        "max_staleness",
        least=-1,
        since="fleetx",
    ),
)
TRAINER_DESC: Rows = (
    Field(1, "", "folder for dumped values", "dump_fields_path", since="2.2", effect=_none),
    _strings(2, "dump_fields", "variables to dump", since="2.2", effect=_none),
    _strings(3, "dump_param", "parameters to dump", since="2.2", effect=_none),
    _strings(4, "stat_var_names", "variables for statistics", since="2.2", effect=_none),
    Field(5, "", "class of trainers", "trainer", since="2.3", effect=_none),
    Field(6, "", "class of device workers", "device_worker", since="2.3", effect=_none),
    _strings(7, "local_sparse", "tables kept by the worker", since="2.3", effect=_none),
    _strings(8, "remote_sparse", "tables kept by servers", since="2.3", effect=_none),
)
TENSOR_PARALLEL: Rows = (
    Field(1, 1, "workers per layer", "tensor_parallel_degree", since="2.1", effect=_refused),
    Field(2, -1, "seed of split parameters", "tensor_init_seed", since="2.1", effect=_refused),
)
HYBRID: Rows = (
    Field(1, -1, "data parallel degree", "dp_degree", since="2.1", effect=_refused),
    Field(2, 1, "tensor parallel degree", "mp_degree", since="2.1", effect=_refused),
    Field(3, 1, "pipeline degree", "pp_degree", since="2.1", effect=_refused),
    Field(4, 1, "sharding degree", "sharding_degree", since="2.2", effect=_refused),
    Field(5, 1, "sequence parallel degree", "sep_degree", since="2.6", effect=_refused),
)
GRADIENT_SCALE: Rows = (
    Field(
        1,
        "avg",
        "what becomes of summed gradients",
        "scale_strategy",
        since="2.2",
        choices=("avg", "sum", "customized"),
    ),
    Field(
        2, False, "scale gradients instead of the loss", "scale_gradient", since="2.5", effect=_none
    ),
)
QAT: Rows = (
    Field(1, True, "a scale per channel", "channel_wise_abs_max", since="2.4", effect=_refused),
    Field(2, 8, "bits of weights", "weight_bits", since="2.4", effect=_refused),
    Field(3, 8, "bits of activations", "activation_bits", since="2.4", effect=_refused),
    _strings(4, "not_quant_pattern", "names to leave out", since="2.4", effect=_refused),
    Field(5, "", "algorithm", "algo", since="2.4", effect=_refused),
)
BUILD: Rows = (
    Field(1, False, "ops one after another", "enable_sequential_execution", effect=_none),
    Field(2, False, "fuse additions and activations", "fuse_elewise_add_act_ops", effect=_none),
    Field(3, False, "fuse normalisation and activation", "fuse_bn_act_ops", effect=_none),
    Field(4, False, "fuse relu and convolution", "fuse_relu_depthwise_conv", effect=_none),
    Field(5, False, "fuse broadcasts", "fuse_broadcast_ops", effect=_none),
    Field(6, False, "fuse updates (always done)", "fuse_all_optimizer_ops", effect=_none),
    Field(7, False, "reuse memory (always done)", "enable_inplace", effect=_none),
    Field(8, True, "order of updates", "enable_backward_optimizer_op_deps", effect=_none),
    Field(9, False, "keep contexts", "cache_runtime_context", effect=_none),
    Field(10, True, "fuse normalisation, sum, activation", "fuse_bn_add_act_ops", effect=_none),
    Field(11, False, "compile the step with torch's compiler", "enable_auto_fusion"),
    Field(12, False, "add gradients in place", "enable_addto", effect=_none),
    Field(13, False, "fixed order of ops", "fix_op_run_order", since="2.1", effect=_none),
    Field(14, False, "CUDA graphs", "allow_cuda_graph_capture", since="2.2", effect=_none),
    Field(15, 0, "0 all-reduce, 1 reduce", "reduce_strategy", since="2.2", effect=_none),
    Field(16, False, "fuse after products", "fuse_gemm_epilogue", since="2.3", effect=_none),
    Field(17, "", "where to draw graphs", "debug_graphviz_path", since="2.3", effect=_none),
    Field(18, False, "fuse attention", "fused_attention", since="2.5", effect=_none),
    Field(19, False, "fuse feed-forward blocks", "fused_feedforward", since="2.5", effect=_none),
)
EXECUTION: Rows = (
    Field(1, 1, "threads", "num_threads", effect=_none),
    Field(2, 10, "steps before scopes are dropped", "num_iteration_per_drop_scope", effect=_none),
    Field(3, 1, "steps per run", "num_iteration_per_run", effect=_none),
    Field(4, False, "how threads wait", "use_thread_barrier", effect=_none),
)


class Configs(dict[str, Any]):
    """The settings of one technique: a dictionary with fixed keys, whose values are checked."""

    def __init__(self, name: str, fields: Rows) -> None:
        super().__init__((field.name, field.initial()) for field in fields)
        self.name = name
        self.fields = {field.name: field for field in fields}
        self.given: set[str] = set()

    def __setitem__(self, key: str, value: Any) -> None:
        self.assign({key: value})

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set the given keys; the others stay."""
        self.assign(dict(*args, **kwargs))

    def assign(
        self,
        values: Mapping[str, Any],
        *,
        extend: bool = False,
        unknown: Callable[[str], Exception] = ValueError,
    ) -> None:
        """Set the given keys, all or none; the others stay.

        With `extend`, elements are added to lists instead of replacing them; `unknown` makes the
        exception for a key that does not exist.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"{self.name} takes a dict of settings, not {values!r}.")
        for key in values:
            if key not in self.fields:
                raise unknown(f"key:{key} not in {self.name}." + unknown_name(key, self.fields))
        checked = {
            key: self.fields[key].check(value, f"{self.name}[{key!r}]", bool_is_int=extend)
            for key, value in values.items()
        }
        for key, value in checked.items():
            if extend and isinstance(value, list):
                value = self[key] + value
            super().__setitem__(key, value)
            self.given.add(key)

    def __delitem__(self, key: str) -> None:
        raise TypeError(f"settings of {self.name} cannot be removed, only set.")

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        # On its own it is copied and pickled as the plain dictionary it looks like.
        return dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Configs:
        result = Configs(self.name, tuple(self.fields.values()))
        dict.update(result, copy.deepcopy(dict(self), memo))
        result.given = set(self.given)
        return result
