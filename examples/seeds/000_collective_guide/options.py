"""The table of a strategy's options, each trained with: `fleetrun --nproc_per_node 2 options.py`.

Prints a line per option with the losses of the first and the last step.
"""

import numpy as np
from network import gen_data

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

OPTIONS = {
    "exec_strategy": lambda: {"exec_strategy": fluid.ExecutionStrategy()},
    "use_local_sgd": lambda: {"use_local_sgd": True},
    "mode=nccl2": lambda: {"mode": "nccl2"},
    "mode=collective": lambda: {"mode": "collective"},
    "nccl_comm_num": lambda: {"nccl_comm_num": 2},
    "use_hierarchical_allreduce": lambda: {
        "use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2
    },
    "forward_recompute": lambda: {"forward_recompute": True, "recompute_checkpoints": CHECKPOINTS},
}  # fmt: skip
CHECKPOINTS: list[fluid.Variable] = []

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
for name, settings in OPTIONS.items():
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 5
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        x = fluid.layers.data(name="x", shape=[32], dtype="float32")
        y = fluid.layers.data(name="y", shape=[1], dtype="int64")
        first = fluid.layers.fc(input=x, size=16, act="tanh")
        second = fluid.layers.fc(input=first, size=16, act="tanh")
        prediction = fluid.layers.fc(input=second, size=2, act="softmax")
        cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=y))
        CHECKPOINTS[:] = [first, second]
        strategy = DistributedStrategy()
        for field, value in settings().items():
            setattr(strategy, field, value)
        optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy=strategy)
        optimizer.minimize(cost, startup)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fleet.startup_program)
        rng = np.random.default_rng(fleet.worker_index())
        batch = gen_data(rng)
        losses = [
            exe.run(fleet.main_program, feed=batch, fetch_list=[cost])[0].item() for _ in range(8)
        ]
        print(f"{name}: {losses[0]:.4f} -> {losses[-1]:.4f}")
