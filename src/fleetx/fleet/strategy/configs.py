"""The `*_configs` of a DistributedStrategy that belong to no technique, as tables of fields.

Names and defaults are those of Paddle 2.x; a row says since which version the key exists and what
it means. Keys that Paddle has dropped again are kept, numbered from 1000. The settings of a
technique are the dataclass in its own file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fleetx.step.settings import Effect, Field, Rows

_Inert = partial(Field, effect=Effect.NONE)
_Refused = partial(Field, effect=Effect.REFUSED)


def _strings(
    kind: Callable[..., Field[Any]], number: int, name: str, meaning: str, since: str
) -> Field[Any]:
    return kind(number, [], meaning, name, element=str, since=since)


TRAINER_DESC: Rows = (
    _Inert(1, "", "folder for dumped values", "dump_fields_path", since="2.2"),
    _strings(_Inert, 2, "dump_fields", "variables to dump", since="2.2"),
    _strings(_Inert, 3, "dump_param", "parameters to dump", since="2.2"),
    _strings(_Inert, 4, "stat_var_names", "variables for statistics", since="2.2"),
    _Inert(5, "", "class of trainers", "trainer", since="2.3"),
    _Inert(6, "", "class of device workers", "device_worker", since="2.3"),
    _strings(_Inert, 7, "local_sparse", "tables kept by the worker", since="2.3"),
    _strings(_Inert, 8, "remote_sparse", "tables kept by servers", since="2.3"),
)
HYBRID: Rows = (
    Field(1, -1, "copies of the model; -1: as many as there are", "dp_degree", since="2.1"),
    Field(2, 1, "workers that divide layers", "mp_degree", since="2.1", least=1),
    Field(3, 1, "stages of the pipeline", "pp_degree", since="2.1", least=1),
    Field(4, 1, "workers that divide state", "sharding_degree", since="2.2", least=1),
    _Refused(5, 1, "sequence parallel degree", "sep_degree", since="2.6"),
    Field(
        1001,
        False,
        "workers of a copy bring different samples, and the copy trains on all of them; otherwise "
        "they must bring the same ones",
        "joined_batches",
        since="fleetx",
    ),
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
    _Inert(2, False, "scale gradients instead of the loss", "scale_gradient", since="2.5"),
)
QAT: Rows = (
    _Refused(1, True, "a scale per channel", "channel_wise_abs_max", since="2.4"),
    _Refused(2, 8, "bits of weights", "weight_bits", since="2.4"),
    _Refused(3, 8, "bits of activations", "activation_bits", since="2.4"),
    _strings(_Refused, 4, "not_quant_pattern", "names to leave out", since="2.4"),
    _Refused(5, "", "algorithm", "algo", since="2.4"),
)
BUILD: Rows = (
    _Inert(1, False, "ops one after another", "enable_sequential_execution"),
    _Inert(2, False, "fuse additions and activations", "fuse_elewise_add_act_ops"),
    _Inert(3, False, "fuse normalisation and activation", "fuse_bn_act_ops"),
    _Inert(4, False, "fuse relu and convolution", "fuse_relu_depthwise_conv"),
    _Inert(5, False, "fuse broadcasts", "fuse_broadcast_ops"),
    _Inert(6, False, "fuse updates (always done)", "fuse_all_optimizer_ops"),
    _Inert(7, False, "reuse memory (always done)", "enable_inplace"),
    _Inert(8, True, "order of updates", "enable_backward_optimizer_op_deps"),
    _Inert(9, False, "keep contexts", "cache_runtime_context"),
    _Inert(10, True, "fuse normalisation, sum, activation", "fuse_bn_add_act_ops"),
    Field(11, False, "compile the step with torch's compiler", "enable_auto_fusion"),
    _Inert(12, False, "add gradients in place", "enable_addto"),
    _Inert(13, False, "fixed order of ops", "fix_op_run_order", since="2.1"),
    _Inert(14, False, "CUDA graphs", "allow_cuda_graph_capture", since="2.2"),
    _Inert(15, 0, "0 all-reduce, 1 reduce", "reduce_strategy", since="2.2"),
    _Inert(16, False, "fuse after products", "fuse_gemm_epilogue", since="2.3"),
    _Inert(17, "", "where to draw graphs", "debug_graphviz_path", since="2.3"),
    _Inert(18, False, "fuse attention", "fused_attention", since="2.5"),
    _Inert(19, False, "fuse feed-forward blocks", "fused_feedforward", since="2.5"),
)
EXECUTION: Rows = (
    _Inert(1, 1, "threads", "num_threads"),
    _Inert(2, 10, "steps before scopes are dropped", "num_iteration_per_drop_scope"),
    _Inert(3, 1, "steps per run", "num_iteration_per_run"),
    _Inert(4, False, "how threads wait", "use_thread_barrier"),
)
