"""Networks, optimizers, regularizers, clips and schedules of the proof under the names of 2.x."""

import paddle
from paddle import nn, optimizer, static
from paddle.nn import functional
from paddle.optimizer import lr

paddle.enable_static()
Program, program_guard = static.Program, static.program_guard
scope_guard, global_scope = static.scope_guard, static.global_scope
new_scope, fresh_names = static.Scope, paddle.utils.unique_name.guard


def mlp():
    """The network of the documents' first program."""
    x = static.data("x", [None, 32], "float32")
    y = static.data("y", [None, 1], "int64")
    hidden = static.nn.fc(x, 128, activation="tanh")
    hidden = static.nn.fc(hidden, 128, activation="tanh")
    return functional.cross_entropy(input=static.nn.fc(hidden, 2), label=y)


def mlp_with_attributes():
    """Parameters with rates, decays and clips of their own, and one that is not trained."""
    x = static.data("x", [None, 32], "float32")
    y = static.data("y", [None, 1], "int64")
    slow = paddle.ParamAttr(learning_rate=0.5, regularizer=paddle.regularizer.L1Decay(1e-3))
    hidden = functional.relu(nn.Linear(32, 32, weight_attr=slow, bias_attr=False)(x))
    fixed = paddle.ParamAttr(name="fixed", trainable=False)
    hidden = functional.sigmoid(nn.Linear(32, 16, weight_attr=fixed)(hidden))
    large = paddle.ParamAttr(
        regularizer=paddle.regularizer.L2Decay(0.1), learning_rate=2.0, need_clip=False
    )
    return functional.cross_entropy(nn.Linear(16, 2, weight_attr=large)(hidden), y)


def conv():
    """Convolutions with batch normalisation, a shortcut and both kinds of pooling."""
    image = static.data("image", [None, 3, 10, 10], "float32")
    label = static.data("label", [None, 1], "int64")
    x = nn.Conv2D(3, 6, 3, padding=1, bias_attr=False)(image)
    x = functional.relu(nn.BatchNorm2D(6)(x))
    x = nn.MaxPool2D(3, stride=2, padding=1)(x)
    y = nn.BatchNorm2D(6)(nn.Conv2D(6, 6, 3, padding=1, groups=2, bias_attr=False)(x))
    x = nn.AdaptiveAvgPool2D(1)(functional.relu(x + y))
    logits = nn.Linear(6, 5)(paddle.flatten(x, start_axis=1))
    return functional.cross_entropy(logits, label)


def ctr(is_sparse=False, table="table", own_table=None):
    """Sequences of ids through one table, pooled in several ways, beside dense features."""
    dense = static.data("dense", [None, 4], "float32")
    first = static.data("first", [None, 1], "int64", lod_level=1)
    second = static.data("second", [None, 1], "int64", lod_level=1)
    click = static.data("click", [None, 1], "int64")
    features = [dense]
    for ids, kind in [(first, "sum"), (second, "average"), (first, "max"), (second, "sqrt")]:
        looked = static.nn.embedding(ids, [40, 8], is_sparse=is_sparse, param_attr=table)
        features.append(static.nn.sequence_pool(paddle.squeeze(looked, 1), kind))
    own = static.nn.embedding(first, [40, 8], is_sparse=is_sparse, param_attr=own_table)
    own = paddle.squeeze(own, 1)
    weight = static.nn.sequence_softmax(static.nn.fc(own, 1, bias_attr=False))
    features.append(static.nn.sequence_pool(own * weight, "sum"))
    features.append(static.nn.sequence_first_step(own))
    hidden = static.nn.fc(paddle.concat(features, axis=1), 16, activation="relu")
    return functional.cross_entropy(static.nn.fc(hidden, 2), click)


def ctr_sparse():
    """The same with gradients that hold only the rows that were looked up."""
    return ctr(is_sparse=True)


def ctr_with_attributes():
    """Tables with sparse gradients, and rates and decays of their own."""
    slow = paddle.ParamAttr(
        name="table", learning_rate=0.5, regularizer=paddle.regularizer.L1Decay(0.002)
    )
    return ctr(
        True, slow, paddle.ParamAttr(name="own", regularizer=paddle.regularizer.L2Decay(0.05))
    )


def resnet18():
    """ResNet-18 on images of 32x32, in double precision."""
    paddle.set_default_dtype("float64")
    image = static.data("image", [None, 3, 32, 32], "float64")
    label = static.data("label", [None, 1], "int64")
    return functional.cross_entropy(paddle.vision.models.resnet18(num_classes=10)(image), label)


def _lars(rate, weight_decay=None, grad_clip=None):
    return paddle.incubate.optimizer.LarsMomentumOptimizer(
        rate(1.0), 0.9, regularization=weight_decay, grad_clip=grad_clip
    )


OPTIMIZERS = {
    "sgd": lambda rate, **more: optimizer.SGD(rate(0.1), **more),
    "momentum": lambda rate, **more: optimizer.Momentum(rate(0.05), 0.9, **more),
    "nesterov": lambda rate, **more: optimizer.Momentum(rate(0.05), 0.9, use_nesterov=True, **more),
    "adam": lambda rate, **more: optimizer.Adam(rate(0.002), **more),
    "adam lazy": lambda rate, **more: optimizer.Adam(rate(0.002), lazy_mode=True, **more),
    "adamw": lambda rate, **more: optimizer.AdamW(rate(0.002), weight_decay=0.05, **more),
    "adamw chosen": lambda rate, **more: optimizer.AdamW(
        rate(0.002), weight_decay=0.05, apply_decay_param_fun=lambda n: n.endswith("w_0"), **more
    ),
    "adagrad": lambda rate, **more: optimizer.Adagrad(rate(0.02), **more),
    "rmsprop": lambda rate, **more: optimizer.RMSProp(rate(0.001), momentum=0.9, **more),
    "rmsprop centered": lambda rate, **more: optimizer.RMSProp(rate(0.001), centered=True, **more),
    "adamax": lambda rate, **more: optimizer.Adamax(rate(0.002), **more),
    "lamb": lambda rate, **more: optimizer.Lamb(
        rate(0.002), exclude_from_weight_decay_fn=lambda p: p.name.endswith("b_0"), **more
    ),
    "lars": _lars,
    "adadelta": lambda rate, **more: optimizer.Adadelta(rate(0.5), **more),
}
DECAYS = {"L2": lambda: 0.02, "L1": lambda: paddle.regularizer.L1Decay(0.002)}
CLIPS = {
    "by value": lambda: nn.ClipGradByValue(max=0.002, min=-0.003),
    "by norm": lambda: nn.ClipGradByNorm(0.05),
    "by global norm": lambda: nn.ClipGradByGlobalNorm(0.1),
}
SCHEDULES = {
    "piecewise": lambda r: lr.PiecewiseDecay([5, 12], [r, r / 2, r / 10]),
    "polynomial": lambda r: lr.PolynomialDecay(r, 15, r / 100, power=2.0),
    "polynomial cycle": lambda r: lr.PolynomialDecay(r, 6, r / 100, cycle=True),
    "exponential": lambda r: lr.ExponentialDecay(r, 0.9),
    "natural exponential": lambda r: lr.NaturalExpDecay(r, 0.1),
    "inverse time": lambda r: lr.InverseTimeDecay(r, 0.1),
    "cosine": lambda r: lr.CosineAnnealingDecay(r, 12, eta_min=r / 50),
    "noam": lambda r: lr.NoamDecay(64, 8, learning_rate=r * 20),
    "warm-up": lambda r: lr.LinearWarmup(r, 8, r / 10, r),
    "warm-up cosine": lambda r: lr.LinearWarmup(lr.CosineAnnealingDecay(r, 12), 8, r / 10, r),
    "step": lambda r: lr.StepDecay(r, 6, gamma=0.5),
    "multi-step": lambda r: lr.MultiStepDecay(r, [4, 11], gamma=0.3),
    "lambda": lambda r: lr.LambdaDecay(r, lambda epoch: 0.95**epoch),
    "one cycle": lambda r: lr.OneCycleLR(r * 2, 20),
    "cyclic": lambda r: lr.CyclicLR(r / 10, r, step_size_up=4, step_size_down=3),
    "linear": lambda r: lr.LinearLR(r, 10),
    "multiplicative": lambda r: lr.MultiplicativeDecay(r, lambda epoch: 0.95),
    "restarts": lambda r: lr.CosineAnnealingWarmRestarts(r, T_0=4, T_mult=2),
}


def training(kind, decay, clip, schedule, scale):
    """Return the optimizer of a case and what to call after each step."""
    schedulers = []

    def rate(value):
        if schedule not in SCHEDULES:
            return value * scale
        schedulers.append(SCHEDULES[schedule](value * scale))
        return schedulers[0]

    more = {}
    if decay in DECAYS:
        more["weight_decay"] = DECAYS[decay]()
    if clip in CLIPS:
        more["grad_clip"] = CLIPS[clip]()
    made = OPTIMIZERS[kind](rate, **more)
    return made, lambda: [each.step() for each in schedulers]


def executor():
    """Return an executor on the CPU."""
    return static.Executor(paddle.CPUPlace())


def sequences(values, lengths):
    """Return rows that form sequences of the given lengths."""
    tensor = paddle.framework.core.LoDTensor()
    tensor.set(values, paddle.CPUPlace())
    tensor.set_recursive_sequence_lengths([lengths])
    return tensor


def save_parameters(exe, folder, program):
    """Write the parameters, each to a file of its own."""
    static.save_vars(exe, folder, program, vars=program.all_parameters())


def load_parameters(exe, folder, program):
    """Read the parameters."""
    static.load_vars(exe, folder, program, vars=program.all_parameters())
