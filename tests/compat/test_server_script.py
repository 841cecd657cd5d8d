"""The program of Paddle's Fleet guide for parameter servers, with the names of `paddle`."""

from __future__ import annotations

import numpy as np
import pytest
from jobs import run_job

pytestmark = pytest.mark.slow  # starts jobs or servers

pytest.importorskip("paddle")


def script(sync: bool) -> tuple[list[float], float, float] | None:
    """Train as the guide does; return all losses, the AUC, and by how much a weight has moved."""
    import paddle
    import paddle.fluid as fluid
    from paddle.fluid.incubate.fleet.base import role_maker
    from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
        DistributeTranspilerConfig,
        fleet,
    )

    def fake_reader():
        random = np.random.RandomState(fleet.worker_index())
        for _ in range(24 * 8):
            x = random.rand(13).astype("float32")
            yield x, [int(x.sum() > 6.5)]

    fluid.default_startup_program().random_seed = 1
    fleet.init(role_maker.PaddleCloudRoleMaker())
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="int64")
    predict = fluid.layers.fc(fluid.layers.fc(x, 32, act="relu"), 2, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(predict, y))
    auc, auc_batch, _ = fluid.layers.auc(input=predict, label=y)

    config = DistributeTranspilerConfig()
    config.sync_mode = sync
    if not sync:
        config.runtime_split_send_recv = True
    optimizer = fleet.distributed_optimizer(fluid.optimizer.Adam(learning_rate=0.02), config)
    optimizer.minimize(cost)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return None
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    fleet.init_worker()
    feeder = fluid.DataFeeder(place=place, feed_list=[x, y])
    train_reader = paddle.batch(fake_reader, batch_size=24)
    exe.run(fleet.startup_program)

    def weight():
        return np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())

    first, losses = weight(), []
    # Asynchronous workers get new parameters after every 20 pushes only, as Paddle has it.
    for _ in range(5 if sync else 20):
        for data in train_reader():
            loss, area, _ = exe.run(
                fleet.main_program, feed=feeder.feed(data), fetch_list=[cost, auc, auc_batch]
            )
            losses.append(float(loss[0]))
    fleet.stop_worker()
    return losses, float(area[0]), float(abs(weight() - first).max())


@pytest.mark.parametrize("sync", [True, False])
def test_the_program_of_the_guide(sync):
    for losses, area, moved in run_job(script, 2, 2, sync):
        assert len(losses) == 8 * (5 if sync else 20)
        assert np.isfinite(losses).all()
        assert 0 <= area <= 1
        assert 0 < moved < 10
        if sync:  # deterministic; asynchronous workers push at any time
            assert np.mean(losses[-8:]) < np.mean(losses[:8])
            assert area > 0.65
