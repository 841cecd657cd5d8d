"""Networks, optimizers, regularizers, clips and schedules of the proof under the names of 1.x."""

import paddle.fluid as fluid
from paddle.fluid import layers, optimizer, regularizer

Program, program_guard = fluid.Program, fluid.program_guard
scope_guard, global_scope = fluid.scope_guard, fluid.global_scope
new_scope, fresh_names = fluid.core.Scope, fluid.unique_name.guard


def mlp():
    """The network of the documents' first program."""
    x = layers.data(name="x", shape=[32], dtype="float32")
    y = layers.data(name="y", shape=[1], dtype="int64")
    hidden = layers.fc(input=x, size=128, act="tanh")
    hidden = layers.fc(input=hidden, size=128, act="tanh")
    prediction = layers.fc(input=[hidden], size=2, act="softmax")
    return layers.mean(x=layers.cross_entropy(input=prediction, label=y))


def mlp_with_attributes():
    """Parameters with rates, decays and clips of their own, and one that is not trained."""
    x = layers.data(name="x", shape=[32], dtype="float32")
    y = layers.data(name="y", shape=[1], dtype="int64")
    slow = fluid.ParamAttr(learning_rate=0.5, regularizer=regularizer.L1Decay(1e-3))
    hidden = layers.fc(x, 32, act="relu", param_attr=slow, bias_attr=False)
    fixed = fluid.ParamAttr(name="fixed", trainable=False)
    hidden = layers.fc(hidden, 16, act="sigmoid", param_attr=fixed)
    large = fluid.ParamAttr(regularizer=regularizer.L2Decay(0.1), learning_rate=2.0)
    logits = layers.fc(hidden, 2, param_attr=large)
    return layers.mean(layers.softmax_with_cross_entropy(logits, y))


def conv():
    """Convolutions with batch normalisation, a shortcut and both kinds of pooling."""
    image = layers.data(name="image", shape=[3, 10, 10], dtype="float32")
    label = layers.data(name="label", shape=[1], dtype="int64")
    x = layers.conv2d(image, num_filters=6, filter_size=3, padding=1, bias_attr=False)
    x = layers.batch_norm(x, act="relu")
    x = layers.pool2d(x, pool_size=3, pool_stride=2, pool_padding=1, pool_type="max")
    y = layers.conv2d(x, num_filters=6, filter_size=3, padding=1, groups=2, bias_attr=False)
    x = layers.elementwise_add(x, layers.batch_norm(y), act="relu")
    x = layers.pool2d(x, pool_type="avg", global_pooling=True)
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(x, 5), label))


def ctr(is_sparse=False, table="table", own_table=None):
    """Sequences of ids through one table, pooled in several ways, beside dense features."""
    dense = layers.data(name="dense", shape=[4], dtype="float32")
    first = layers.data(name="first", shape=[1], dtype="int64", lod_level=1)
    second = layers.data(name="second", shape=[1], dtype="int64", lod_level=1)
    click = layers.data(name="click", shape=[1], dtype="int64")
    features = [dense]
    for ids, kind in [(first, "sum"), (second, "average"), (first, "max"), (second, "sqrt")]:
        looked = layers.embedding(ids, size=[40, 8], is_sparse=is_sparse, param_attr=table)
        features.append(layers.sequence_pool(looked, kind))
    own = layers.embedding(first, size=[40, 8], is_sparse=is_sparse, param_attr=own_table)
    weight = layers.sequence_softmax(layers.fc(own, 1, bias_attr=False))
    features.append(layers.sequence_pool(layers.elementwise_mul(own, weight, axis=0), "sum"))
    features.append(layers.sequence_first_step(own))
    hidden = layers.fc(layers.concat(features, axis=1), 16, act="relu")
    prediction = layers.fc(hidden, 2, act="softmax")
    return layers.mean(layers.cross_entropy(input=prediction, label=click))


def ctr_sparse():
    """The same with gradients that hold only the rows that were looked up."""
    return ctr(is_sparse=True)


def ctr_with_attributes():
    """Tables with sparse gradients, and rates and decays of their own."""
    slow = fluid.ParamAttr(name="table", learning_rate=0.5, regularizer=regularizer.L1Decay(0.002))
    return ctr(True, slow, fluid.ParamAttr(name="own", regularizer=regularizer.L2Decay(0.05)))


def resnet18():
    """ResNet-18 on images of 32x32, in double precision."""
    from models import Fluid

    image = layers.data(name="image", shape=[3, 32, 32], dtype="float64")
    label = layers.data(name="label", shape=[1], dtype="int64")
    return layers.mean(layers.softmax_with_cross_entropy(Fluid().resnet(image), label))


OPTIMIZERS = {
    "sgd": lambda rate, **more: optimizer.SGD(rate(0.1), **more),
    "momentum": lambda rate, **more: optimizer.Momentum(rate(0.05), 0.9, **more),
    "nesterov": lambda rate, **more: optimizer.Momentum(rate(0.05), 0.9, use_nesterov=True, **more),
    "adam": lambda rate, **more: optimizer.Adam(rate(0.002), **more),
    "adam lazy": lambda rate, **more: optimizer.Adam(rate(0.002), lazy_mode=True, **more),
    "adagrad": lambda rate, **more: optimizer.Adagrad(rate(0.02), **more),
    "rmsprop": lambda rate, **more: optimizer.RMSProp(rate(0.001), momentum=0.9, **more),
    "rmsprop centered": lambda rate, **more: optimizer.RMSProp(rate(0.001), centered=True, **more),
    "adamax": lambda rate, **more: optimizer.Adamax(rate(0.002), **more),
    "lamb": lambda rate, **more: optimizer.Lamb(
        rate(0.002), exclude_from_weight_decay_fn=lambda p: p.name.endswith("b_0"), **more
    ),
    "lars": lambda rate, **more: optimizer.LarsMomentum(rate(1.0), 0.9, **more),
    "decayed adagrad": lambda rate, **more: optimizer.DecayedAdagrad(rate(0.002), **more),
    "ftrl": lambda rate, **more: optimizer.Ftrl(rate(0.05), l1=0.001, l2=0.001, **more),
}
DECAYS = {"L2": lambda: regularizer.L2Decay(0.02), "L1": lambda: regularizer.L1Decay(0.002)}
CLIPS = {
    "by value": lambda: fluid.clip.GradientClipByValue(max=0.002, min=-0.003),
    "by norm": lambda: fluid.clip.GradientClipByNorm(0.05),
    "by global norm": lambda: fluid.clip.GradientClipByGlobalNorm(0.1),
}
SCHEDULES = {
    "piecewise": lambda r: layers.piecewise_decay([5, 12], [r, r / 2, r / 10]),
    "polynomial": lambda r: layers.polynomial_decay(r, 15, r / 100, power=2.0),
    "polynomial cycle": lambda r: layers.polynomial_decay(r, 6, r / 100, cycle=True),
    "exponential": lambda r: layers.exponential_decay(r, 5, 0.5),
    "exponential staircase": lambda r: layers.exponential_decay(r, 5, 0.5, staircase=True),
    "natural exponential": lambda r: layers.natural_exp_decay(r, 5, 0.5),
    "inverse time": lambda r: layers.inverse_time_decay(r, 5, 0.5, staircase=True),
    "cosine": lambda r: layers.cosine_decay(r, step_each_epoch=4, epochs=5),
    "noam": lambda r: layers.noam_decay(64, 8, learning_rate=r * 20),
    "warm-up": lambda r: layers.linear_lr_warmup(r, 8, r / 10, r),
    "warm-up cosine": lambda r: layers.linear_lr_warmup(
        layers.cosine_decay(r, step_each_epoch=4, epochs=5), 8, r / 10, r
    ),
}


def training(kind, decay, clip, schedule, scale):
    """Return the optimizer of a case and what to call after each step."""
    more = {}
    if decay in DECAYS:
        more["regularization"] = DECAYS[decay]()
    if clip in CLIPS:
        more["grad_clip"] = CLIPS[clip]()
    rate = SCHEDULES.get(schedule, float)
    return OPTIMIZERS[kind](lambda r: rate(r * scale), **more), lambda: None


def executor():
    """Return an executor on the CPU."""
    return fluid.Executor(fluid.CPUPlace())


def sequences(values, lengths):
    """Return rows that form sequences of the given lengths."""
    return fluid.create_lod_tensor(values, [lengths], fluid.CPUPlace())


def save_parameters(exe, folder, program):
    """Write the parameters, each to a file of its own."""
    fluid.io.save_params(exe, folder, program)


def load_parameters(exe, folder, program):
    """Read the parameters."""
    fluid.io.load_params(exe, folder, program)
