"""Run functions of Paddle 2.0's static mode, and print what they compute: name_values.py API.

Both engines build the programs below from the same numbers; what is random is printed as far as the
numbers of both agree.
"""

import json

import numpy as np

import paddle
import paddle.nn.functional as F
from paddle import nn, static
from paddle.vision import ops

paddle.enable_static()
random = np.random.RandomState(3)
found = {}


def rand(*shape):
    """Return numbers that are the same in both engines."""
    return random.standard_normal(shape).astype("float32")


def run(name, build, **feeds):
    """Keep what `build` computes of variables, and its gradient by the first one."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        inputs = [static.data(n, list(a.shape), str(a.dtype)) for n, a in feeds.items()]
        for var in inputs:
            var.stop_gradient = not str(feeds[var.name].dtype).startswith("float")
        out = build(*inputs)
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        if not inputs[0].stop_gradient and not outs[0].stop_gradient:
            outs += [g for g in static.gradients([outs[0]], [inputs[0]]) if g is not None]
    executor = static.Executor(paddle.CPUPlace())
    with static.scope_guard(static.Scope()):
        executor.run(startup)
        values = executor.run(main, feed=feeds, fetch_list=outs)
    found[name] = [np.asarray(value).astype("f8").reshape(-1).tolist() for value in values]


constant = paddle.ParamAttr(initializer=nn.initializer.Constant(0.3))
lengths = {"steps": np.array([5, 4]), "tokens": np.array([3, 1])}
logits, labels = rand(5, 2, 4), np.array([[1, 2, 2], [3, 1, 1]], "int32")
for reduction in ("none", "mean", "sum"):
    run(
        "ctc_loss " + reduction,
        lambda x, y, a, b, r=reduction: nn.CTCLoss(reduction=r)(x, y, a, b),
        x=logits,
        y=labels,
        **lengths,
    )
features, classes = rand(4, 3), np.array([[0], [1], [4], [2]])
run("hsigmoid_loss", lambda x, y: nn.HSigmoidLoss(3, 5, constant)(x, y), x=features, y=classes)
run(
    "hsigmoid_loss of weights",
    lambda x, y, w, b: F.hsigmoid_loss(x, y, 5, w, b),
    x=features,
    y=classes,
    w=rand(4, 3),
    b=rand(4, 1),
)
run("alpha_dropout off", lambda x: F.alpha_dropout(x, 0.4, training=False) * 2, x=features)
run("alpha_dropout 1", lambda x: F.alpha_dropout(x, 1.0), x=features)
run("alpha_dropout 0", lambda x: nn.AlphaDropout(0.0)(x), x=features)
for p in (1.0, 2.0, 4.0):
    run(f"PairwiseDistance {p}", nn.PairwiseDistance(p), x=rand(3, 4), y=rand(3, 4))
images, shifts, weights = rand(2, 4, 6, 6), rand(2, 18, 6, 6), rand(2, 9, 6, 6)
run(
    "deform_conv2d",
    lambda x, o, m, w, b: ops.deform_conv2d(x, o, w, b, padding=1, mask=m),
    x=images,
    o=shifts,
    m=weights,
    w=rand(3, 4, 3, 3),
    b=rand(3),
)
run(
    "DeformConv2D",
    lambda x, o: ops.DeformConv2D(4, 3, 3, padding=1, weight_attr=constant)(x, o),
    x=images,
    o=shifts,
)
run(
    "static.nn.deform_conv2d",
    lambda x, o, m: static.nn.deform_conv2d(x, o, m, 3, 3, padding=1, weight_attr=constant),
    x=images,
    o=shifts,
    m=weights,
)
run(
    "yolo_box",
    lambda x, s: ops.yolo_box(x, s, [10, 13, 16, 30], 2, 0.01, 32),
    x=rand(1, 14, 3, 3),
    s=np.array([[96, 96]], "int32"),
)
run(
    "yolo_loss",
    lambda x, b, c: ops.yolo_loss(x, b, c, [10, 13, 16, 30], [0, 1], 2, 0.7, 32),
    x=rand(1, 14, 3, 3),
    b=np.array([[[0.4, 0.5, 0.2, 0.3]]], "float32"),
    c=np.array([[1]], "int32"),
)
categorical = paddle.distribution.Categorical
chances, classes = np.abs(rand(2, 3, 4)), np.array([3, 0])
for name, shown in (("1", chances[0, 0]), ("2", chances[0]), ("3", chances)):
    run("Categorical.probs " + name, lambda x, c: categorical(x).probs(c), x=shown, c=classes)
    run("Categorical.log_prob " + name, lambda x, c: categorical(x).log_prob(c), x=shown, c=classes)
    run("Categorical.entropy " + name, lambda x: categorical(x).entropy(), x=shown)
rows = np.array([[3, 0], [1, 1], [2, 3]])
run("Categorical.probs of rows", lambda x, c: categorical(x).probs(c), x=chances[0], c=rows)
run(
    "Categorical.kl_divergence",
    lambda x, y: categorical(x).kl_divergence(categorical(y)),
    x=chances[0],
    y=chances[1],
)
run("Normal.probs", lambda x: paddle.distribution.Normal(0.5, 2.0).probs(x), x=features)
run("Uniform.probs", lambda x: paddle.distribution.Uniform(-1.0, 2.0).probs(x), x=features)
signal = (rand(3, 2) + 1j * rand(3, 2)).astype("complex64")
run("real", lambda x: [paddle.real(x), paddle.imag(x), paddle.imag(paddle.conj(x))], x=signal)
print("FOUND " + json.dumps(found))
