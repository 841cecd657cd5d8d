"""The table of strategies that go together: `fleetrun --nproc_per_node 2 combinations.py`.

Every combination trains a small network for some steps and prints its first and its last loss,
and what fleet has applied.
"""

import numpy as np

import paddle
import paddle.distributed.fleet as fleet
import paddle.fluid as fluid

COMBINATIONS = (
    "amp recompute", "dgc recompute", "lars recompute", "lamb recompute", "amp localsgd",
    "amp adaptive_localsgd", "amp lars", "amp lamb", "amp recompute lars", "amp recompute lamb",
)  # fmt: skip

paddle.enable_static()
fleet.init(is_collective=True)
for number, names in enumerate(COMBINATIONS, 1):
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 3
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        x = fluid.data(name="x", shape=[None, 32], dtype="float32")
        y = fluid.data(name="y", shape=[None, 1], dtype="int64")
        first = fluid.layers.fc(x, 64, act="tanh")
        second = fluid.layers.fc(first, 64, act="tanh")
        scores = fluid.layers.fc(second, 2)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))
        dist_strategy = fleet.DistributedStrategy()
        for name in names.split():
            setattr(dist_strategy, name, True)
        if "recompute" in names:
            dist_strategy.recompute_configs = {"checkpoints": [first.name, second.name]}
        if "lamb" in names:
            optimizer = fluid.optimizer.Adam(learning_rate=0.01)
        elif "localsgd" in names:
            optimizer = fluid.optimizer.SGD(learning_rate=0.1)
        else:
            rate = 0.1 if "lars" in names else 0.05
            optimizer = fluid.optimizer.Momentum(learning_rate=rate, momentum=0.9)
        optimizer = fleet.distributed_optimizer(optimizer, dist_strategy)
        optimizer.minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        rng = np.random.default_rng(fleet.worker_index())
        features = rng.random((64, 32), dtype=np.float32)
        feed = {"x": features, "y": (features.sum(1, keepdims=True) > 16).astype("int64")}
        losses = [exe.run(main, feed=feed, fetch_list=[loss])[0].item() for _ in range(20)]
        print(f"{number}. {' + '.join(names.split())}: {losses[0]:.4f} -> {losses[-1]:.4f}")
        print("applied:", *fleet._get_applied_meta_list())
