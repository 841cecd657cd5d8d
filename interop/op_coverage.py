"""Registered op types without a case, each with the reason."""

from __future__ import annotations

from op_cases import LATER, cases

import fleetx.static
from fleetx.static.graph.op_registry import op_types

# Types of the programs of `scripts/op_programs.py`, which need other ops around them.
PROGRAMS = """
array_to_lod_tensor beam_search_decode conditional_block lod_array_length lod_rank_table
lod_tensor_to_array max_sequence_len merge_lod_tensor print py_func read_from_array recurrent
reorder_lod_tensor_by_rank rnn_memory_helper select_input select_output shrink_rnn_memory
split_lod_tensor tensor_array_to_tensor while write_to_array load feed fetch create_py_reader
create_double_buffer_reader read
"""
# Reason: types.
REASONS = {
    "exchanges between workers; jobs of several workers test it": """
        allreduce barrier broadcast c_allgather c_allreduce_max c_allreduce_min c_allreduce_prod
        c_allreduce_sum c_broadcast c_comm_init c_comm_init_all c_gen_nccl_id c_reduce_max
        c_reduce_min c_reduce_prod c_reduce_sum c_reducescatter c_scatter c_sync_calc_stream
        c_sync_comm_stream recv_v2 send_v2 sync_batch_norm""",
    "belongs to a program for parameter servers; jobs with servers test it": """
        distributed_lookup_table fake_init fetch_barrier listen_and_serv recv send send_barrier
        split_byref split_selected_rows""",
    "is an op of FleetX alone": """
        adaptive_interval agree_on_overflow clip_factor clip_gradients exchange_gradients
        lookup_saved_rows outer_step stop_on_nan sync_parameters""",
    "is written into a program by Paddle's C++ passes alone": """
        conditional_block_infer merge_lod_tensor_infer""",
    "has no kernel for CPUs in Paddle": "cudnn_lstm dgc memcpy rank_attention",
    "has no value to compare": "assert empty get_places",
    "is the gradient of an op that has cases": "dropout_grad dropout_nd_grad",
}


def covered() -> set[str]:
    """Return the types that a case or a program has."""
    found = {case.type for seed in (0, 1) for case in cases(seed)}
    found |= {case.type for seed in (0, 1) for case in cases(seed, LATER)}
    return found | set(PROGRAMS.split())


def without_a_case() -> dict[str, str]:
    """Return the registered types without a case, with the reason; an empty one if unknown."""
    assert fleetx.static.ops
    reasons = {name: reason for reason, names in REASONS.items() for name in names.split()}
    return {name: reasons.get(name, "") for name in sorted(set(op_types()) - covered())}
