"""Twenty updates by lars_momentum and lamb with given gradients and learning rates.

    run_large_batch.py fluid|static INPUTS.npz FOUND.npz

The loss is the sum of parameter times gradient, so that the fed gradient is the gradient.
"""

import sys

import numpy as np

import paddle

fluids, given = sys.argv[1] == "fluid", np.load(sys.argv[2])
if fluids:
    from paddle import fluid
    from paddle.fluid import layers

    data, reduce_sum = fluid.data, layers.reduce_sum
    create_parameter = layers.create_parameter
    Assign = fluid.initializer.NumpyArrayInitializer
    static, ParamAttr = fluid, fluid.ParamAttr

    def make_rate():
        return data("rate", [1], "float32")

    def make(kind, rate):
        if kind == "lars":
            return fluid.optimizer.LarsMomentum(rate, 0.9, 0.02, 0.1)
        return fluid.optimizer.Lamb(
            rate, 0.1, 0.9, 0.99, 1e-3, exclude_from_weight_decay_fn=lambda p: p.name == "b"
        )
else:
    paddle.enable_static()
    from paddle import ParamAttr, static

    data, reduce_sum = static.data, paddle.sum
    create_parameter = static.create_parameter
    Assign = paddle.nn.initializer.Assign

    def make_rate():
        rates = [*given["rates"].tolist(), 0.0]
        return paddle.optimizer.lr.LambdaDecay(1.0, lambda step: rates[step])

    def make(kind, rate):
        if kind == "lars":
            return paddle.incubate.optimizer.LarsMomentumOptimizer(
                rate, 0.9, 0.02, 0.1, exclude_from_weight_decay=["b"], epsilon=0.01
            )
        return paddle.optimizer.Lamb(
            rate, 0.1, 0.9, 0.99, 1e-3, always_adapt=True,
            exclude_from_weight_decay_fn=lambda p: p.name == "b",
        )  # fmt: skip


results = {}
for kind in ("lars", "lamb"):
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        rate = make_rate()
        total = []
        for name in ("w", "b"):
            first = given[name]
            attr = ParamAttr(name=name, initializer=Assign(first))
            parameter = create_parameter(list(first.shape), "float32", attr=attr)
            total.append(reduce_sum(parameter * data("grad_" + name, list(first.shape), "float32")))
        loss = reduce_sum(total[0] + total[1])
        make(kind, rate).minimize(loss)
    exe = static.Executor(paddle.fluid.CPUPlace() if fluids else paddle.CPUPlace())
    with static.scope_guard(static.Scope() if hasattr(static, "Scope") else fluid.core.Scope()):
        exe.run(startup)
        for t in range(20):
            feed = {"grad_" + n: given["grad_" + n][t] for n in ("w", "b")}
            if fluids:
                feed["rate"] = given["rates"][t : t + 1]
            values = exe.run(main, feed=feed, fetch_list=["w", "b"])
            if not fluids:
                rate.step()
            for name, value in (("w", values[0]), ("b", values[1])):
                results[f"{kind} {name} {t}"] = np.array(value)
np.savez(sys.argv[3], **results)
