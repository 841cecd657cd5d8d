"""Layers of Fluid's `contrib`, LSTM over padded sequences, selected rows, and evaluators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from op_check import check_op

import paddle.fluid as fluid
from fleetx import static
from fleetx.static import layers as L  # noqa: N812 - as programs write it
from fleetx.static.metrics import evaluators
from paddle.fluid import contrib

Array = np.ndarray[Any, Any]


def lod_tensor(rows: Array, lengths: list[int]) -> Any:
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())


def run(build: Any, feed: dict[str, Any], steps: int = 1) -> list[Array]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        fetches = build()
    exe = static.Executor()
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        for _ in range(steps):
            found = exe.run(main, feed=feed, fetch_list=list(fetches), return_numpy=False)
    return found


HEIGHTS, WIDTHS = [3, 1], [2, 4]


def images(seed: int = 0) -> dict[str, Any]:
    values = np.random.RandomState(seed).rand(2 * (3 * 2 + 1 * 4), 1).astype("float32")
    return {
        "x": lod_tensor(values, [12, 8]),
        "row": lod_tensor(np.zeros((4, 1), "float32"), HEIGHTS),
        "col": lod_tensor(np.zeros((6, 1), "float32"), WIDTHS),
    }


def image_inputs() -> list[Any]:
    return [fluid.layers.data(name, [1], lod_level=1) for name in ("x", "row", "col")]


@pytest.mark.parametrize(
    ("kernel", "stride", "lengths"), [((3, 3), 1, [18, 12]), ((2, 3), (2, 1), [12, 12])]
)
def test_var_conv_2d(kernel: Any, stride: Any, lengths: list[int]) -> None:
    weight = np.random.RandomState(1).rand(3, 2 * kernel[0] * kernel[1]).astype("float32")
    attr = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(weight))
    feed = images()
    (out,) = run(
        lambda: [contrib.layers.var_conv_2d(*image_inputs(), 2, 3, kernel, stride, attr)], feed
    )
    assert out.recursive_sequence_lengths() == [lengths]
    rows = torch.from_numpy(np.array(feed["x"])).view(-1).split([12, 8])
    expected = []
    for piece, height, width in zip(rows, HEIGHTS, WIDTHS, strict=True):
        # Zeros around, and only the windows whose middle is in the image.
        full = torch.nn.functional.conv2d(
            piece.view(1, 2, height, width),
            torch.from_numpy(weight).view(3, 2, *kernel),
            stride=stride,
            padding=(kernel[0] // 2, kernel[1] // 2),
        )
        steps = stride if isinstance(stride, tuple) else (stride, stride)
        expected.append(
            full[0, :, : (height - 1) // steps[0] + 1, : (width - 1) // steps[1] + 1].reshape(-1)
        )
    np.testing.assert_allclose(np.array(out)[:, 0], torch.cat(expected), rtol=1e-5)


def test_sequence_topk_avg_pooling() -> None:
    feed = images()
    (out,) = run(
        lambda: [contrib.layers.sequence_topk_avg_pooling(*image_inputs(), [1, 3], 2)], feed
    )
    assert out.recursive_sequence_lengths() == [HEIGHTS]
    values = np.array(feed["x"])[:, 0]
    first = -np.sort(-values[:12].reshape(2, 3, 2), axis=2)
    second = -np.sort(-values[12:].reshape(2, 1, 4), axis=2)
    for row in range(3):
        expected = [v for c in first[:, row] for v in (c[0], c.sum() / 3)]
        np.testing.assert_allclose(np.array(out)[row], expected, rtol=1e-6)
    expected = [v for c in second[:, 0] for v in (c[0], c[:3].mean())]
    np.testing.assert_allclose(np.array(out)[3], expected, rtol=1e-6)


def test_images_of_other_sizes_are_refused() -> None:
    feed = images()
    feed["row"] = lod_tensor(np.zeros((4, 1), "float32"), [2, 2])
    with pytest.raises(Exception, match=r"here \[8, 16\], but X has \[12, 8\]"):
        run(lambda: [contrib.layers.sequence_topk_avg_pooling(*image_inputs(), [1], 2)], feed)


@pytest.mark.parametrize("type", ["var_conv_2d", "sequence_topk_avg_pooling"])
def test_gradients_of_image_sequences(type: str) -> None:
    values = np.random.RandomState(3).permutation(20).reshape(20, 1) / 4.0
    inputs: dict[str, Any] = {
        "X": (values, [[12, 8]]),
        "ROW": (np.zeros((4, 1)), [HEIGHTS]),
        "COLUMN": (np.zeros((6, 1)), [WIDTHS]),
    }
    attrs: dict[str, Any] = {"topks": [1, 2], "channel_num": 2}
    if type == "var_conv_2d":
        inputs["W"] = np.random.RandomState(4).rand(2, 2 * 2 * 3)
        attrs = {"InputChannel": 2, "OutputChannel": 2, "KernelH": 2, "KernelW": 3}
    check_op(
        type,
        inputs,
        attrs,
        grad_of=[s for s in inputs if s not in ("ROW", "COLUMN")],
        grad_from=["Out"],
    )


@pytest.mark.parametrize(
    ("functors", "axis", "expected"),
    [
        (["elementwise_add", "scale"], -1, lambda x, y: x + 0.5 * y),
        ("scale,elementwise_add", 1, lambda x, y: 0.5 * (x + y)),
        (["elementwise_add", "relu"], -1, lambda x, y: x + np.maximum(y, 0)),
        (["relu", "elementwise_add"], -1, lambda x, y: np.maximum(x + y, 0)),
        (["elementwise_mul", "tanh"], -1, lambda x, y: x * np.tanh(y)),
    ],
)
def test_fused_elemwise_activation(functors: Any, axis: int, expected: Any) -> None:
    random = np.random.RandomState(0)
    x, y = random.randn(3, 4).astype("float32"), random.randn(4).astype("float32")

    def build() -> Any:
        a = fluid.data("x", [3, 4])
        b = fluid.data("y", [4])
        return [contrib.layers.fused_elemwise_activation(a, b, functors, axis, 0.5)]

    (out,) = run(build, {"x": x, "y": y})
    np.testing.assert_allclose(np.array(out), expected(x, y), rtol=1e-6)
    with pytest.raises(ValueError, match="functor_list has two names, not"):
        contrib.layers.fused_elemwise_activation(None, None, ["relu"])


def test_ctr_metric_bundle() -> None:
    p = np.array([[0.9], [0.2], [0.4]], "float32")
    y = np.array([[1], [0], [1]], "float32")

    def build() -> Any:
        return contrib.layers.ctr_metric_bundle(
            fluid.layers.data("p", [1]), fluid.layers.data("y", [1])
        )

    found = np.concatenate([np.array(value) for value in run(build, {"p": p, "y": y}, steps=2)])
    sigmoid = 1 / (1 + np.exp(-p))
    once = [((p - y) ** 2).sum(), abs(p - y).sum(), p.sum(), sigmoid.sum(), 2, 3]
    np.testing.assert_allclose(found, 2 * np.array(once), rtol=1e-6)
    with pytest.raises(ValueError, match="have the same shape"):
        contrib.layers.ctr_metric_bundle(fluid.data("a", [1, 1]), fluid.data("b", [2, 1]))


def test_multiclass_nms2() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], "float32")
    scores = np.array([[[0, 0, 0], [0.8, 0.9, 0.7]]], "float32")

    def build(**options: Any) -> Any:
        inputs = fluid.layers.data("b", [3, 4]), fluid.layers.data("s", [2, 3])
        return contrib.layers.multiclass_nms2(*inputs, 0.1, 3, 3, **options)

    out, index = run(lambda: build(return_index=True), {"b": boxes, "s": scores})
    np.testing.assert_allclose(np.array(out)[:, 1], [0.9, 0.7])
    assert np.array(index).tolist() == [[1], [2]]
    (alone,) = run(lambda: [build()], {"b": boxes, "s": scores})
    np.testing.assert_array_equal(np.array(alone), np.array(out))


@pytest.mark.parametrize("both_ways", [False, True])
def test_lstm_has_the_weights_of_cudnn(both_ways: bool) -> None:
    ways, layers, size, hidden = 1 + both_ways, 2, 3, 4
    torch.manual_seed(0)
    reference = torch.nn.LSTM(size, hidden, layers, bidirectional=both_ways)
    matrices = [p for name, p in reference.named_parameters() if name.startswith("weight")]
    biases = [p for name, p in reference.named_parameters() if name.startswith("bias")]
    weight = torch.cat([p.detach().reshape(-1) for p in matrices + biases]).numpy()
    x = torch.randn(5, 2, size)
    h, c = torch.randn(2, ways * layers, 2, hidden)

    def build() -> Any:
        shape = [ways * layers, 2, hidden]
        return fluid.layers.lstm(
            fluid.data("x", [5, 2, size]),
            *(fluid.data(name, shape) for name in "hc"),
            5,
            hidden,
            layers,
            is_bidirec=both_ways,
            default_initializer=fluid.initializer.NumpyArrayInitializer(weight),
        )

    found = run(build, {"x": x.numpy(), "h": h.numpy(), "c": c.numpy()})
    out, state = reference(x, (h, c))
    for mine, theirs in zip(found, (out, *state), strict=True):
        np.testing.assert_allclose(np.array(mine), theirs.detach(), rtol=1e-5, atol=1e-6)


def test_selected_rows() -> None:
    main, scope = static.Program(), static.Scope()
    with static.program_guard(main, static.Program()):
        rows = main.global_block().create_var(
            name="rows", shape=[7, 2], dtype="float32", persistable=True
        )
        values = fluid.layers.get_tensor_from_selected_rows(fluid.layers.merge_selected_rows(rows))
    handle = scope.var("rows").get_selected_rows()
    handle.set_rows([4, 1, 4, 0])
    handle.set_height(7)
    handle.get_tensor().set(np.arange(8.0).reshape(4, 2).astype("float32"), None)
    with static.scope_guard(scope):
        (found,) = static.Executor().run(main, fetch_list=[values])
        assert found.tolist() == [[6, 7], [2, 3], [4, 6]]
        scope.var("rows").get_tensor().set(np.ones((7, 2), "float32"), None)
        with pytest.raises(Exception, match="takes selected rows, not a dense tensor"):
            static.Executor().run(main, fetch_list=[values])


def test_evaluators() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        found, wanted = (L.data(name, [1], dtype="int64", lod_level=1) for name in ("a", "b"))
        with pytest.warns(UserWarning, match="prefer fluid.metrics.EditDistance"):
            distance = fluid.evaluator.EditDistance(found, wanted)
        with pytest.warns(UserWarning, match="prefer fluid.metrics.ChunkEvaluator"):
            chunks = fluid.evaluator.ChunkEvaluator(found, wanted, "IOB", 1)
        block = main._create_block()
        warned = pytest.warns(UserWarning, match="EditDistance")
        with warned, pytest.raises(ValueError, match="outermost block"):
            evaluators.EditDistance(found, wanted)
        main._rollback()
        assert block.idx == 1
    right = lod_tensor(np.array([[0], [1], [2], [0]]), [3, 1])
    wrong = lod_tensor(np.array([[0], [1], [2], [2]]), [3, 1])
    exe = static.Executor()
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        for _ in range(2):
            distance.reset(exe)
            chunks.reset(exe)
            for predicted in (right, wrong):
                exe.run(main, feed={"a": predicted, "b": right})
            # One wrong symbol in a sequence of one, of four sequences; one chunk missed of four.
            assert [v.tolist() for v in distance.eval(exe)] == [[0.25], [0.25]]
            precision, recall, f1 = chunks.eval(exe)
            assert (precision[0], recall[0]) == (1, 0.75)
            assert f1[0] == pytest.approx(6 / 7)
