"""Write the ops of small networks with mixed precision: amp_programs.py API FILE."""

import inspect
import json
import re
import sys

import paddle

if sys.argv[1] == "fluid":
    import paddle.fluid as static
    from paddle.fluid.contrib import mixed_precision as amp

    layers, Momentum = static.layers, static.optimizer.Momentum
    guard = static.unique_name.guard

    def data(name, shape, dtype="float32"):
        return static.layers.data(name, shape, dtype=dtype)

    def dense(x, size, act=None):
        return layers.fc(x, size, act=act)

    def pool(x):
        return layers.pool2d(x, 2, "max", 2)

    conv2d, batch_norm, mean = layers.conv2d, layers.batch_norm, layers.mean
    loss_of = layers.softmax_with_cross_entropy
else:
    from paddle import static
    from paddle.static import amp

    paddle.enable_static()
    functional, Momentum = paddle.nn.functional, paddle.optimizer.Momentum
    guard = paddle.utils.unique_name.guard

    def data(name, shape, dtype="float32"):
        return static.data(name, [-1, *shape], dtype)

    def dense(x, size, act=None):
        return static.nn.fc(x, size, activation=act)

    def pool(x):
        return functional.max_pool2d(x, 2, 2)

    conv2d, batch_norm, mean = static.nn.conv2d, static.nn.batch_norm, paddle.mean
    loss_of = functional.softmax_with_cross_entropy


def perceptron():
    hidden = dense(dense(data("x", [8]), 16, "tanh"), 16, "relu")
    return mean(loss_of(dense(hidden, 4), data("y", [1], "int64")))


def convolution():
    hidden = pool(batch_norm(conv2d(data("img", [1, 8, 8]), 4, 3), act="relu"))
    return mean(loss_of(dense(hidden, 10), data("y", [1], "int64")))


def residual():
    hidden = dense(data("x", [8]), 16)
    return mean(dense(hidden + dense(hidden, 16, "sigmoid"), 4))


def lists(**changes):
    made = amp.AutoMixedPrecisionLists(**changes)
    # A Paddle without CUDA calls every op unsupported in float16.
    made.unsupported_list = set(changes.get("custom_black_list", ()))
    return made


def ops_of(network, **changes):
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), guard():
        loss = network()
        # Without a type FleetX takes the one that the device is made for.
        named = "dtype" in inspect.signature(amp.decorate).parameters
        more = {"dtype": "float16"} if named else {}
        amp.decorate(Momentum(0.1, 0.9), lists(**changes), **more).minimize(loss)
    block, rows = main.global_block(), []
    for op in main.global_block().ops:
        if op.attr("op_role") & 1:
            break  # backward begins
        if op.type == "fill_constant":
            continue  # settings of the loss scale, as 1.x keeps them
        types = {label(n): type_of(block.var(n)) for n in op.input_arg_names}
        rows.append([op.type, types, sorted({label(n) for n in op.output_arg_names})])
    return rows


def label(name):
    """Return a name without its number among the results of batch_norm: 2.x has one more."""
    return re.sub(r"(batch_norm_\d+\.tmp)_\d+", r"\1", name)


def type_of(variable):
    """Return fp16, fp32, int64, ...: releases spell it differently."""
    return str(variable.dtype).split(".")[-1].lower().replace("float", "fp")


CASES = {
    "perceptron": (perceptron, {}),
    "perceptron with lists": (
        perceptron,
        {"custom_white_list": ["softmax_with_cross_entropy"], "custom_black_list": ["tanh"]},
    ),
    "perceptron with names": (perceptron, {"custom_black_varnames": {"fc_1.w_0"}}),
    "convolution": (convolution, {}),
    "residual": (residual, {}),
}

with open(sys.argv[2], "w") as stream:
    json.dump({name: ops_of(net, **changes) for name, (net, changes) in CASES.items()}, stream)
