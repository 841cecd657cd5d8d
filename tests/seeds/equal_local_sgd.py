"""One program, trained with gradients or with parameters averaged at every step; rank 0 writes the
parameters as JSON."""

import json
import sys

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

options = json.loads(sys.argv[1])
written = {}
fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
for use_local_sgd in (False, True):
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 5
    scope = fluid.Scope()
    with (
        fluid.program_guard(main, startup),
        fluid.scope_guard(scope),
        fluid.unique_name.guard(),
    ):
        x = fluid.data(name="x", shape=[None, 6], dtype="float64")
        cost = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 3, act="tanh")))
        strategy = DistributedStrategy()
        strategy.use_local_sgd = use_local_sgd
        optimizer = fluid.optimizer.SGD(learning_rate=0.5)
        optimizer = fleet.distributed_optimizer(optimizer, strategy)
        optimizer.minimize(cost, startup)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fleet.startup_program)
        rng = np.random.default_rng(fleet.worker_index())
        for _ in range(5):
            exe.run(fleet.main_program, feed={"x": rng.standard_normal((4, 6))}, fetch_list=[cost])
        written[str(use_local_sgd)] = {
            p.name: np.array(scope.find_var(p.name).get_tensor()).tolist()
            for p in fleet._origin_program.all_parameters()
        }
if fleet.worker_index() == 0:
    with open(options["out"], "w") as file:
        json.dump(written, file)
