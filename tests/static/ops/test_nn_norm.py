"""Normalisation, dropout and look-up ops: values against torch, gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_check import OpProgram, check_op

from fleetx import static
from fleetx.static.graph.op_registry import get_op

RNG = np.random.default_rng(1)


def rand(*shape):
    return RNG.standard_normal(shape)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def batch_norm_inputs(*shape, channels):
    return {
        "X": rand(*shape),
        "Scale": rand(channels),
        "Bias": rand(channels),
        "Mean": rand(channels),
        "Variance": RNG.uniform(0.5, 2.0, channels),
    }


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (2, 3, 2, 2)])
def test_batch_norm_in_training(shape):
    inputs = batch_norm_inputs(*shape, channels=3)
    x, mean, variance = inputs["X"], inputs["Mean"].copy(), inputs["Variance"].copy()
    axes = tuple(i for i in range(len(shape)) if i != 1)
    batch_mean, batch_var = x.mean(axes), x.var(axes)
    y = F.batch_norm(t(x), None, None, t(inputs["Scale"]), t(inputs["Bias"]), True, 0.0, 1e-3)
    expected = {
        "Y": y.numpy(),
        "MeanOut": 0.8 * mean + 0.2 * batch_mean,
        "VarianceOut": 0.8 * variance + 0.2 * batch_var,
        "SavedMean": batch_mean,
        "SavedVariance": 1 / np.sqrt(batch_var + 1e-3),
    }
    attrs = {"momentum": 0.8, "epsilon": 1e-3}
    check_op("batch_norm", inputs, attrs, expected, grad_of=[])
    inputs["Mean"], inputs["Variance"] = mean, variance
    check_op("batch_norm", inputs, attrs, grad_of=["X", "Scale", "Bias"], grad_from=["Y"])


@pytest.mark.parametrize("attrs", [{"is_test": True}, {"use_global_stats": True}])
def test_batch_norm_with_running_statistics(attrs):
    inputs = batch_norm_inputs(2, 3, 2, channels=3)
    y = F.batch_norm(*(t(inputs[k]) for k in ("X", "Mean", "Variance", "Scale", "Bias")))
    expected = {"Y": y.numpy(), "MeanOut": inputs["Mean"], "VarianceOut": inputs["Variance"]}
    check_op("batch_norm", inputs, attrs, expected, grad_from=["Y"])


def test_batch_norm_channels_last_and_momentum_tensor():
    inputs = batch_norm_inputs(2, 2, 2, 3, channels=3)
    mean = inputs["Mean"].copy()
    y = F.batch_norm(
        t(inputs["X"]).permute(0, 3, 1, 2), None, None, t(inputs["Scale"]), t(inputs["Bias"]), True
    )
    inputs["MomentumTensor"] = np.array([0.25], "float32")
    expected = {
        "Y": y.permute(0, 2, 3, 1).numpy(),
        "MeanOut": 0.25 * mean + 0.75 * inputs["X"].mean((0, 1, 2)),
    }
    check_op("batch_norm", inputs, {"data_layout": "NHWC"}, expected, grad_of=[])


def test_gradient_op_of_batch_norm_leaves_the_running_statistics_alone():
    grad = get_op("batch_norm_grad")
    tensors = {k: t(v) for k, v in batch_norm_inputs(4, 3, channels=3).items()}
    before = tensors["Mean"].clone()
    names = {"inputs": {k: [k] for k in tensors}, "outputs": {"X@GRAD": ["x"]}}
    args = [tensors.get(s.name) for s in grad.inputs]
    args[[s.name for s in grad.inputs].index("Y@GRAD")] = torch.ones(4, 3, dtype=torch.float64)
    attrs = {k: a.default for k, a in grad.attrs.items()}
    grad.bind(attrs)(*args, names=names)
    assert torch.equal(tensors["Mean"], before)


@pytest.mark.parametrize("axis", [1, 2])
def test_layer_norm(axis):
    x = rand(2, 3, 4)
    n = int(np.prod(x.shape[axis:]))
    scale, bias = rand(n), rand(n)
    shape = x.shape[axis:]
    y = F.layer_norm(t(x), shape, t(scale).reshape(shape), t(bias).reshape(shape), 1e-5)
    rows = x.reshape(-1, n)
    expected = {"Y": y.numpy(), "Mean": rows.mean(1), "Variance": rows.var(1)}
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    check_op("layer_norm", inputs, {"begin_norm_axis": axis}, expected, grad_from=["Y"])


def test_layer_norm_without_scale_and_bias():
    x = rand(3, 4)
    check_op("layer_norm", {"X": x}, {}, {"Y": F.layer_norm(t(x), (4,)).numpy()})


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(affine):
    x = rand(2, 4, 3)
    inputs = {"X": x}
    weight = bias = None
    if affine:
        weight, bias = rand(4), rand(4)
        inputs |= {"Scale": weight, "Bias": bias}
    y = F.group_norm(t(x), 2, *(None if v is None else t(v) for v in (weight, bias)))
    groups = x.reshape(2, 2, -1)
    expected = {"Y": y.numpy(), "Mean": groups.mean(2), "Variance": groups.var(2)}
    check_op("group_norm", inputs, {"groups": 2}, expected, grad_from=["Y"])
    last = {**inputs, "X": np.ascontiguousarray(x.transpose(0, 2, 1))}
    attrs = {"groups": 2, "data_layout": "NHWC"}
    check_op("group_norm", last, attrs, {"Y": y.permute(0, 2, 1).numpy()}, grad_of=[])


def test_instance_norm():
    x, scale, bias = rand(2, 3, 4), rand(3), rand(3)
    y = F.instance_norm(t(x), weight=t(scale), bias=t(bias))
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    check_op("instance_norm", inputs, {}, {"Y": y.numpy()}, grad_from=["Y"])


def test_lrn():
    x = rand(1, 5, 2, 2)
    expected = F.local_response_norm(t(x), 3, alpha=0.3, beta=0.75, k=2.0)
    check_op("lrn", {"X": x}, {"n": 3, "k": 2.0, "alpha": 0.1}, {"Out": expected.numpy()})


@pytest.mark.slow
def test_spectral_norm_divides_by_the_largest_singular_value():
    w = rand(3, 2, 2)
    inputs = {"Weight": w, "U": rand(3), "V": rand(4)}
    expected = w / np.linalg.svd(w.reshape(3, -1), compute_uv=False)[0]
    # After enough iterations the vectors do not matter, so differences see what autograd sees.
    check_op("spectral_norm", inputs, {"power_iters": 200}, {"Out": expected}, rtol=1e-5)


def test_data_norm_gives_sums_as_gradients():
    x, size, total, square = rand(4, 3), np.full(3, 10.0), rand(3), np.full(3, 5.0)
    means, scales = total / size, np.sqrt(size / square)
    inputs = {"X": x, "BatchSize": size, "BatchSum": total, "BatchSquareSum": square}
    expected = {"Y": (x - means) * scales, "Means": means, "Scales": scales}
    check_op("data_norm", inputs, {}, expected, grad_of=["X"], grad_from=["Y"])
    program = OpProgram("data_norm", inputs, {"epsilon": 0.001}, {})
    loss = program.add_loss(["Y"], {"Y": [x]})
    variables = [program.inputs[s][0] for s in ("BatchSize", "BatchSum", "BatchSquareSum")]
    found = program.run(static.gradients([loss], variables))
    np.testing.assert_allclose(found[0], np.full(3, 4.0))
    np.testing.assert_allclose(found[1], x.sum(0))
    np.testing.assert_allclose(found[2], np.square(x - means).sum(0) + 4 * 0.001, rtol=1e-9)


@pytest.mark.parametrize("implementation", ["downgrade_in_infer", "upscale_in_train"])
def test_dropout(implementation):
    x = rand(50, 40)
    attrs = {"dropout_prob": 0.3, "dropout_implementation": implementation}
    scale = 1.0 if implementation == "downgrade_in_infer" else 1 / 0.7
    found = check_op("dropout", {"X": x}, attrs, counts={"Mask": 1})
    mask = found["Mask"][0]
    assert mask.dtype == np.uint8
    assert 0.25 < 1 - mask.mean() < 0.35
    np.testing.assert_allclose(found["Out"][0], x * mask * scale)
    kept = 0.7 if implementation == "downgrade_in_infer" else 1.0
    found = check_op("dropout", {"X": x}, {**attrs, "is_test": True})
    np.testing.assert_allclose(found["Out"][0], x * kept)


def test_dropout_with_a_seed_repeats_itself():
    x = rand(8, 8)
    attrs = {"dropout_prob": 0.5, "seed": 3, "fix_seed": True}
    first, second = (check_op("dropout", {"X": x}, attrs)["Out"][0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_dropout_nd_drops_whole_slices():
    x = np.ones((6, 5, 4))
    found = check_op("dropout_nd", {"X": x}, {"dropout_prob": 0.5, "axis": [0, 1]})
    out = found["Out"][0]
    assert ((out == 0).all(2) | (out == 1).all(2)).all()


@pytest.mark.parametrize("one_by_one", [False, True])
def test_gradient_of_dropout_uses_the_mask_of_the_forward_pass(one_by_one):
    """Also where the program changes a gradient half-way, so that gradient ops run one by one."""
    x = rand(6, 6)
    main = static.Program()
    with static.program_guard(main, static.Program()):
        block = main.global_block()
        var = block.create_var(name="x", shape=x.shape, dtype="float64", is_data=True)
        var.stop_gradient = False
        out, mask, loss = (block.create_var(name=n) for n in ("out", "mask", "loss"))
        block.append_op(
            type="dropout",
            inputs={"X": [var]},
            outputs={"Out": [out], "Mask": [mask]},
            attrs={"dropout_implementation": "upscale_in_train"},
        )
        block.append_op(type="mean", inputs={"X": [out]}, outputs={"Out": [loss]})
        grad = static.gradients([loss], [var])[0]
        if one_by_one:
            block.insert_op(
                [op.type for op in block.ops].index("dropout_grad"),
                type="scale",
                inputs={"X": ["out@GRAD"]},
                outputs={"Out": ["out@GRAD"]},
                attrs={"scale": 3.0},
            )
    executor = static.Executor(static.CPUPlace())
    found, kept = executor.run(main, feed={"x": x}, fetch_list=[grad, "mask"])
    np.testing.assert_allclose(found, kept / x.size * 2 * (3 if one_by_one else 1))


def test_lookup_table():
    w, ids = rand(5, 3), np.array([[1], [4], [1]])
    check_op("lookup_table", {"W": w, "Ids": ids}, {}, {"Out": w[ids[:, 0]]})
    expected = w[ids[:, 0]] * (ids != 4)
    check_op("lookup_table", {"W": w, "Ids": ids}, {"padding_idx": 4}, {"Out": expected})
    with pytest.raises(static.ShapeError, match="last dimension"):
        check_op("lookup_table", {"W": w, "Ids": ids.reshape(1, 3)})


def test_lookup_table_v2():
    w, ids = rand(5, 2), np.array([[1, 4], [0, 1]])
    check_op("lookup_table_v2", {"W": w, "Ids": ids}, {}, {"Out": w[ids]})
    expected = w[ids] * (ids != 0)[..., None]
    check_op("lookup_table_v2", {"W": w, "Ids": ids}, {"padding_idx": 0}, {"Out": expected})
