"""Workarounds that let real Paddle 2.6.2 train a program with static Fleet on CPUs.

Its `minimize` requires a GPU to create a communicator, and the program it generates waits for
streams with ops that have no CPU kernel. The all-reduce has one, but requires Gloo.
"""


def connect(endpoint):
    """Set up Gloo, and keep `minimize` from creating a GPU communicator."""
    from paddle.distributed import fleet, gloo_init_parallel_env
    from paddle.distributed.fleet.meta_optimizers.common import CollectiveHelper

    gloo_init_parallel_env(fleet.worker_index(), fleet.worker_num(), endpoint)
    CollectiveHelper._init_communicator = lambda *_, **__: None


def drop_stream_ops(*programs):
    """Remove the ops that wait for GPU streams."""
    for program in programs:
        block = program.global_block()
        for index in reversed(range(len(block.ops))):
            if block.ops[index].type in ("c_sync_calc_stream", "c_sync_comm_stream"):
                block._remove_op(index)


def barrier():
    """Wait for all workers."""
    from paddle.distributed import gloo_barrier

    gloo_barrier()
