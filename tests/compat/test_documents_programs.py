"""The single-machine programs that Fleet's documents begin with, in a few steps."""

import os

import numpy as np
import pytest

import paddle
import paddle.fluid as fluid


def test_mlp_trains_prints_and_continues_from_its_checkpoint(tmp_path):
    rng = np.random.default_rng(0)
    data = rng.random((128, 32), dtype=np.float32)
    feed = {"x": data, "y": (data.sum(1, keepdims=True) > 16).astype("int64")}
    x = fluid.layers.data(name="x", shape=[32], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="int64")
    hidden = fluid.layers.fc(input=x, size=128, act="tanh")
    hidden = fluid.layers.fc(input=hidden, size=128, act="tanh")
    prediction = fluid.layers.fc(input=[hidden], size=2, act="softmax")
    cost = fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=y))
    fluid.optimizer.SGD(learning_rate=0.1).minimize(cost)
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.default_startup_program().random_seed = 7
    exe.run(fluid.default_startup_program())

    def step():
        (value,) = exe.run(fluid.default_main_program(), feed=feed, fetch_list=[cost.name])
        assert value.shape == (1,)
        return float("%f" % value)  # noqa: UP031 - as the documents print

    losses = [step() for _ in range(40)]
    assert losses[-1] < 0.9 * losses[0]

    folder = str(tmp_path / "model")
    fluid.io.save_persistables(exe, folder)
    assert sorted(name for name in os.listdir(folder) if name != ".fleetx") == sorted(
        [f"fc_{i}.{kind}_0" for i in range(3) for kind in "wb"] + ["learning_rate_0"]
    )
    expected = step()
    exe.run(fluid.default_startup_program())
    found = []

    def if_exist(var):
        exists = os.path.exists(os.path.join(folder, var.name))
        found.append(var.name) if exists else None
        return exists

    fluid.io.load_vars(exe, folder, predicate=if_exist)
    assert len(found) == 7
    assert step() == pytest.approx(expected, rel=1e-5)


def images(batches=3, size=8):
    rng = np.random.default_rng(1)
    for _ in range(batches):
        label = rng.integers(0, 4, (size, 1))
        image = rng.random((size, 3, 16, 16), dtype=np.float32) + label[:, :, None, None]
        yield image.astype("float32"), label


def conv_bn(x, filters, stride=1, act="relu"):
    x = paddle.static.nn.conv2d(x, filters, 3, stride=stride, padding=1, bias_attr=False)
    return paddle.static.nn.batch_norm(x, act=act)


def test_image_classifier_of_the_quick_start():
    paddle.enable_static()
    paddle.vision.set_image_backend("cv2")
    image = paddle.static.data(name="x", shape=[None, 3, 16, 16], dtype="float32")
    label = paddle.static.data(name="y", shape=[None, 1], dtype="int64")
    x = conv_bn(image, 8)
    x = paddle.nn.functional.relu(x + conv_bn(x, 8, act=None))
    x = paddle.nn.functional.adaptive_avg_pool2d(x, 1)
    out = paddle.static.nn.fc(x, size=4)
    loss = paddle.nn.functional.cross_entropy(input=out, label=label)
    top1 = paddle.metric.accuracy(input=out, label=label, k=1)
    top2 = paddle.metric.accuracy(input=out, label=label, k=2)
    place = paddle.CPUPlace()
    loader = paddle.io.DataLoader.from_generator(feed_list=[image, label], capacity=4)
    loader.set_batch_generator(images, places=place)
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.05, momentum=0.9, weight_decay=paddle.regularizer.L2Decay(1e-4)
    )
    optimizer.minimize(loss)
    exe = paddle.static.Executor(place)
    exe.run(paddle.static.default_startup_program())
    lines, losses = [], []
    for epoch in range(6):
        for number, data in enumerate(loader()):
            values = exe.run(
                paddle.static.default_main_program(),
                feed=data,
                fetch_list=[loss.name, top1.name, top2.name],
            )
            losses.append(float(values[0][0]))
            form = "[%d, %d] loss: %.5f, acc1: %.5f, acc2: %.5f"
            lines.append(form % (epoch, number, *values))
    assert len(lines) == 18
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])
    paddle.vision.set_image_backend("pil")


def test_evaluation_through_a_py_reader():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        reader = fluid.layers.py_reader(
            capacity=16,
            shapes=[[-1, 4], [-1, 1]],
            lod_levels=[0, 0],
            dtypes=["float32", "int64"],
            use_double_buffer=True,
        )
        with fluid.unique_name.guard():
            image, label = fluid.layers.read_file(reader)
            out = fluid.layers.fc(input=image, size=3)
    exe = fluid.Executor(fluid.CUDAPlace(0))
    exe.run(startup)

    def samples():
        for i in range(10):
            yield np.full(4, i, "float32"), i

    reader.decorate_paddle_reader(paddle.batch(samples, batch_size=4))
    for _ in range(2):
        reader.start()
        results = []
        try:
            while True:
                results.append(exe.run(main, fetch_list=[out], use_program_cache=True)[0])
        except fluid.core.EOFException:
            reader.reset()
        assert [r.shape for r in results] == [(4, 3), (4, 3), (2, 3)]


def test_program_of_raw_ops():
    """A program of collective ops, put together by hand as the LocalSGD section shows."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        given = fluid.layers.data(name="given", shape=[1], dtype="float32")
        out = main.current_block().create_var(
            name="out",
            dtype="float32",
            type=fluid.core.VarDesc.VarType.LOD_TENSOR,
            persistable=False,
            stop_gradient=False,
        )
        main.global_block().append_op(
            type="scale", inputs={"X": given}, attrs={"scale": 2.0}, outputs={"Out": out}
        )
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    result = exe.run(main, feed={"given": np.ones(1, "float32")}, fetch_list=[out.name])
    assert float(result[0].item()) == 2.0


def test_mixed_precision_decorates_an_optimizer():
    x = fluid.layers.data(name="x", shape=[4], dtype="float32")
    loss = fluid.layers.mean(fluid.layers.fc(x, 3))
    optimizer = fluid.contrib.mixed_precision.decorate(
        fluid.optimizer.SGD(0.1), init_loss_scaling=128.0, use_dynamic_loss_scaling=True
    )
    optimizer.minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 4), "float32")}
    first, second = (exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(2))
    assert second < first
