"""Layers against their torch counterparts with the same parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_program import Built, compute

from fleetx import static
from fleetx.static import nn

RNG = np.random.default_rng(1)


def rand(*shape):
    return RNG.standard_normal(shape).astype("float32")


def same(layer, module, x, names, *, transpose=()):
    """Give both the same parameters and compare outputs; `names` are torch's names in our order."""
    built = Built(lambda x: layer()(x), {"x": x})
    found = built.main.all_parameters()
    with torch.no_grad():
        for parameter, name in zip(found, names, strict=True):
            target = dict([*module.named_parameters(), *module.named_buffers()])[name]
            value = RNG.uniform(0.5, 1.5, parameter.shape).astype("float32")
            built.set(parameter.name, value)
            target.copy_(torch.from_numpy(value.T if name in transpose else value))
        expected = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(built.run()[0], expected, rtol=1e-4, atol=1e-4)
    return built


def test_linear():
    same(
        lambda: nn.Linear(4, 3),
        torch.nn.Linear(4, 3),
        rand(2, 5, 4),
        ["weight", "bias"],
        transpose=["weight"],
    )


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions(dims):
    ours, theirs = getattr(nn, f"Conv{dims}D"), getattr(torch.nn, f"Conv{dims}d")
    x = rand(2, 4, *[6] * dims)
    same(
        lambda: ours(4, 6, 3, stride=2, padding=1, groups=2),
        theirs(4, 6, 3, 2, 1, groups=2),
        x,
        ["weight", "bias"],
    )
    same(
        lambda: ours(4, 4, 2, dilation=2, bias_attr=False),
        theirs(4, 4, 2, dilation=2, bias=False),
        x,
        ["weight"],
    )


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_convolutions(dims):
    ours, theirs = getattr(nn, f"Conv{dims}DTranspose"), getattr(torch.nn, f"ConvTranspose{dims}d")
    same(
        lambda: ours(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        theirs(4, 6, 3, 2, 1, 1, groups=2),
        rand(1, 4, *[3] * dims),
        ["weight", "bias"],
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_convolution_with_other_paddings(mode):
    same(
        lambda: nn.Conv2D(2, 3, 3, padding=(1, 2), padding_mode=mode),
        torch.nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode=mode),
        rand(1, 2, 5, 5),
        ["weight", "bias"],
    )


def test_convolution_channels_last():
    x = rand(1, 5, 6, 2)
    built = Built(lambda x: nn.Conv2D(2, 3, 3, padding="SAME", data_format="NHWC")(x), {"x": x})
    weight = built.get("conv2d_0.w_0")
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(weight), padding=1
    )
    np.testing.assert_allclose(built.run()[0], expected.permute(0, 2, 3, 1).numpy(), atol=1e-5)


@pytest.mark.parametrize(("dims", "shape"), [(1, (4, 3)), (1, (4, 3, 5)), (2, (2, 3, 4, 4))])
def test_batch_norm(dims, shape):
    module = getattr(torch.nn, f"BatchNorm{dims}d")(3)
    names = ["weight", "bias", "running_mean", "running_var"]
    layer = getattr(nn, f"BatchNorm{dims}D")
    same(lambda: layer(3).eval(), module.eval(), rand(*shape), names)
    built = same(lambda: layer(3, momentum=0.7), module.train(), rand(*shape), names)
    prefix = f"batch_norm{dims}d_0"
    mean = built.get(f"{prefix}.w_1")
    built.run()
    axes = (0, *range(2, len(shape)))
    wanted = 0.7 * mean + 0.3 * built.feeds["x"].mean(axes)
    np.testing.assert_allclose(built.get(f"{prefix}.w_1"), wanted, rtol=1e-5)


def test_batch_norm_of_the_first_generation_has_an_activation():
    x = rand(4, 3)
    found = compute(lambda x: nn.BatchNorm(3, act="relu")(x), x=x)
    assert found.min() == 0.0


def test_clone_for_test_uses_running_statistics():
    x = rand(8, 3)
    built = Built(lambda x: nn.BatchNorm1D(3)(x), {"x": x})
    test = built.main.clone(for_test=True)
    found = built.run(program=test, fetch=[built.outputs[0].name])[0]
    np.testing.assert_allclose(found, x / np.sqrt(1 + 1e-5), rtol=1e-5)
    np.testing.assert_array_equal(built.get("batch_norm1d_0.w_1"), np.zeros(3))


def test_sync_batch_norm_replaces_all_batch_norms():
    def build(x):
        net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1D(3))
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        assert isinstance(net[1], nn.SyncBatchNorm)
        return net(x)

    assert compute(build, x=rand(4, 3)).shape == (4, 3)


def test_other_norms():
    x = rand(2, 4, 3, 3)
    affine = ["weight", "bias"]
    same(lambda: nn.GroupNorm(2, 4), torch.nn.GroupNorm(2, 4), x, affine)
    same(lambda: nn.InstanceNorm2D(4), torch.nn.InstanceNorm2d(4, affine=True), x, affine)
    same(lambda: nn.LayerNorm(3), torch.nn.LayerNorm(3), x, affine)
    found = compute(lambda x: nn.LayerNorm([3, 3], weight_attr=False, bias_attr=False)(x), x=x)
    expected = torch.nn.functional.layer_norm(torch.from_numpy(x), (3, 3)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    found = compute(lambda x: nn.LocalResponseNorm(3)(x), x=x)
    expected = torch.nn.functional.local_response_norm(torch.from_numpy(x), 3).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_spectral_norm_layer():
    w = rand(4, 3)
    found = compute(lambda w: nn.SpectralNorm([4, 3], power_iters=50)(w), w=w)
    np.testing.assert_allclose(np.linalg.norm(found, 2), 1.0, rtol=1e-4)


def test_embedding():
    ids = RNG.integers(0, 5, (3, 2))
    built = Built(lambda i: nn.Embedding(5, 4, padding_idx=-1)(i), {"i": ids})
    table = built.get("embedding_0.w_0")
    expected = table[ids] * (ids != 4)[..., None]
    np.testing.assert_allclose(built.run()[0], expected)
    with pytest.raises(ValueError, match="padding_idx"):
        compute(lambda i: nn.Embedding(5, 4, padding_idx=9)(i), i=ids)


def test_dropouts():
    x = np.ones((40, 30, 2, 2), "float32")
    found = compute(lambda x: nn.Dropout(0.25)(x), x=x)
    assert set(np.unique(found)) == {0.0, np.float32(1 / 0.75)}
    np.testing.assert_array_equal(compute(lambda x: nn.Dropout(0.25).eval()(x), x=x), x)
    found = compute(lambda x: nn.Dropout(0.25, mode="downscale_in_infer").eval()(x), x=x)
    np.testing.assert_allclose(found, 0.75 * x)
    found = compute(lambda x: nn.Dropout2D(0.5)(x), x=x)
    whole = found.reshape(40 * 30, 4)
    assert (whole == whole[:, :1]).all()
    assert 0.4 < (whole[:, 0] == 0).mean() < 0.6


@pytest.mark.parametrize(
    ("layer", "module", "shape"),
    [
        (lambda: nn.MaxPool1D(3, 2, 1), torch.nn.MaxPool1d(3, 2, 1), (2, 3, 8)),
        (lambda: nn.MaxPool2D(2), torch.nn.MaxPool2d(2), (2, 3, 6, 6)),
        (lambda: nn.MaxPool3D(2), torch.nn.MaxPool3d(2), (1, 2, 4, 4, 4)),
        (
            lambda: nn.AvgPool1D(3, 2, 1),
            torch.nn.AvgPool1d(3, 2, 1, count_include_pad=False),
            (2, 3, 8),
        ),
        (
            lambda: nn.AvgPool2D(3, 2, 1, exclusive=False),
            torch.nn.AvgPool2d(3, 2, 1),
            (2, 3, 6, 6),
        ),
        (
            lambda: nn.AvgPool2D(2, divisor_override=3),
            torch.nn.AvgPool2d(2, divisor_override=3),
            (2, 3, 6, 6),
        ),
        (lambda: nn.AvgPool3D(2), torch.nn.AvgPool3d(2), (1, 2, 4, 4, 4)),
        (lambda: nn.AdaptiveAvgPool1D(3), torch.nn.AdaptiveAvgPool1d(3), (2, 3, 8)),
        (
            lambda: nn.AdaptiveAvgPool2D((2, None)),
            torch.nn.AdaptiveAvgPool2d((2, None)),
            (1, 2, 5, 4),
        ),
        (lambda: nn.AdaptiveAvgPool3D(2), torch.nn.AdaptiveAvgPool3d(2), (1, 2, 4, 3, 5)),
        (lambda: nn.AdaptiveMaxPool1D(3), torch.nn.AdaptiveMaxPool1d(3), (2, 3, 8)),
        (lambda: nn.AdaptiveMaxPool2D(2), torch.nn.AdaptiveMaxPool2d(2), (1, 2, 5, 4)),
        (lambda: nn.AdaptiveMaxPool3D(2), torch.nn.AdaptiveMaxPool3d(2), (1, 2, 4, 3, 5)),
    ],
)
def test_poolings(layer, module, shape):
    same(layer, module, rand(*shape), [])


def test_pooling_with_places():
    x = rand(1, 2, 4, 4)
    out, mask = compute(lambda x: nn.MaxPool2D(2, return_mask=True)(x), x=x)
    expected, where = torch.nn.functional.max_pool2d(torch.from_numpy(x), 2, return_indices=True)
    np.testing.assert_array_equal(out, expected.numpy())
    np.testing.assert_array_equal(mask, where.numpy())


@pytest.mark.parametrize(
    ("layer", "module"),
    [
        (nn.ReLU, torch.nn.ReLU()),
        (nn.ReLU6, torch.nn.ReLU6()),
        (nn.LeakyReLU, torch.nn.LeakyReLU()),
        (nn.ELU, torch.nn.ELU()),
        (lambda: nn.CELU(0.7), torch.nn.CELU(0.7)),
        (nn.SELU, torch.nn.SELU()),
        (nn.GELU, torch.nn.GELU()),
        (lambda: nn.GELU(True), torch.nn.GELU(approximate="tanh")),
        (nn.GLU, torch.nn.GLU()),
        (nn.Sigmoid, torch.nn.Sigmoid()),
        (nn.Tanh, torch.nn.Tanh()),
        (nn.Hardswish, torch.nn.Hardswish()),
        (nn.Hardsigmoid, torch.nn.Hardsigmoid()),
        (nn.Hardtanh, torch.nn.Hardtanh()),
        (nn.Hardshrink, torch.nn.Hardshrink()),
        (nn.Softshrink, torch.nn.Softshrink()),
        (nn.Tanhshrink, torch.nn.Tanhshrink()),
        (nn.ThresholdedReLU, torch.nn.Threshold(1.0, 0.0)),
        (nn.Swish, torch.nn.SiLU()),
        (nn.SiLU, torch.nn.SiLU()),
        (nn.Mish, torch.nn.Mish()),
        (nn.Softplus, torch.nn.Softplus()),
        (nn.Softsign, torch.nn.Softsign()),
        (nn.LogSigmoid, torch.nn.LogSigmoid()),
        (nn.Softmax, torch.nn.Softmax(-1)),
        (lambda: nn.LogSoftmax(1), torch.nn.LogSoftmax(1)),
    ],
)
def test_activations(layer, module):
    same(layer, module, rand(3, 4) * 3, [])


def test_prelu_and_maxout():
    same(lambda: nn.PReLU(3), torch.nn.PReLU(3), rand(2, 3, 4, 4), ["weight"])
    same(nn.PReLU, torch.nn.PReLU(), rand(2, 3), ["weight"])
    x = rand(2, 4, 3, 3)
    found = compute(lambda x: nn.Maxout(2)(x), x=x)
    np.testing.assert_array_equal(found, x.reshape(2, 2, 2, 3, 3).max(2))


def test_rearranging_layers():
    x = rand(2, 4, 3, 4)
    same(nn.Flatten, torch.nn.Flatten(), x, [])
    same(lambda: nn.Flatten(2, 3), torch.nn.Flatten(2, 3), x, [])
    same(lambda: nn.PixelShuffle(2), torch.nn.PixelShuffle(2), x, [])
    same(lambda: nn.ChannelShuffle(2), torch.nn.ChannelShuffle(2), x, [])
    same(
        lambda: nn.Pad2D([1, 2, 0, 1], value=3.0), torch.nn.ConstantPad2d((1, 2, 0, 1), 3.0), x, []
    )
    same(lambda: nn.Pad2D(1, mode="reflect"), torch.nn.ReflectionPad2d(1), x, [])
    same(lambda: nn.ZeroPad2D(2), torch.nn.ZeroPad2d(2), x, [])
    same(lambda: nn.Pad1D([1, 2]), torch.nn.ConstantPad1d((1, 2), 0.0), rand(2, 3, 4), [])
    same(lambda: nn.Pad3D(1), torch.nn.ConstantPad3d(1, 0.0), rand(1, 2, 2, 2, 2), [])
    same(lambda: nn.Unfold(2, strides=2), torch.nn.Unfold(2, stride=2), rand(2, 3, 4, 4), [])
    same(lambda: nn.Upsample(scale_factor=2), torch.nn.Upsample(scale_factor=2), x, [])
    module = torch.nn.UpsamplingBilinear2d(size=(5, 7))
    same(lambda: nn.UpsamplingBilinear2D(size=[5, 7]), module, x, [])


def test_bilinear():
    x, y = rand(3, 2), rand(3, 4)
    built = Built(lambda x, y: nn.Bilinear(2, 4, 5)(x, y), {"x": x, "y": y})
    weight, bias = built.get("bilinear_0.w_0"), built.get("bilinear_0.b_0")
    expected = np.einsum("ni,kij,nj->nk", x, weight, y) + bias
    np.testing.assert_allclose(built.run()[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("before", [False, True])
def test_transformer_encoder_layer(before):
    x = rand(2, 5, 8)
    module = torch.nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True, norm_first=before
    ).train()
    layer = lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, normalize_before=before)  # noqa: E731
    built = Built(lambda x: layer()(x), {"x": x})
    values = {p.name: rand(*p.shape) * 0.5 for p in built.main.all_parameters()}
    for name, value in values.items():
        built.set(name, value)
    t = torch.from_numpy
    with torch.no_grad():
        heads = [values[f"linear_{i}.w_0"].T for i in range(3)]
        biases = [values[f"linear_{i}.b_0"] for i in range(3)]
        module.self_attn.in_proj_weight.copy_(t(np.concatenate(heads)))
        module.self_attn.in_proj_bias.copy_(t(np.concatenate(biases)))
        parts = [module.self_attn.out_proj, module.linear1, module.linear2]
        for i, part in enumerate(parts, start=3):
            part.weight.copy_(t(values[f"linear_{i}.w_0"].T))
            part.bias.copy_(t(values[f"linear_{i}.b_0"]))
        for i, part in enumerate([module.norm1, module.norm2]):
            part.weight.copy_(t(values[f"layer_norm_{i}.w_0"]))
            part.bias.copy_(t(values[f"layer_norm_{i}.b_0"]))
        expected = module(t(x)).numpy()
    np.testing.assert_allclose(built.run()[0], expected, rtol=1e-4, atol=1e-4)


def test_transformer_with_masks():
    def build(src, tgt, mask):
        net = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0)
        return net(src, tgt, tgt_mask=mask)

    mask = np.tril(np.ones((4, 4), bool))
    src, tgt = rand(1, 5, 8), rand(1, 4, 8)
    built = Built(build, {"src": src, "tgt": tgt, "mask": mask})
    first = built.run()[0]
    built.feeds["tgt"] = np.concatenate([tgt[:, :3], rand(1, 1, 8)], 1)
    second = built.run()[0]
    np.testing.assert_allclose(first[:, :3], second[:, :3], rtol=1e-4, atol=1e-5)
    assert not np.allclose(first[:, 3], second[:, 3])


def test_layers_train():
    """A small network built of layers learns a function of its input."""
    x = rand(32, 4)
    y = (x[:, :1] * x[:, 1:2] > 0).astype("int64")

    def build(x, y):
        net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
        loss = nn.CrossEntropyLoss()(net(x), y)
        static.append_backward(loss)
        return loss

    built = Built(build, {"x": x, "y": y})
    names = [p.name for p in built.main.all_parameters()]
    losses = []
    for _ in range(60):
        loss, *grads = built.run([built.outputs[0], *(f"{n}@GRAD" for n in names)])
        losses.append(loss.item())
        for name, grad in zip(names, grads, strict=True):
            built.set(name, built.get(name) - grad)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: nn.Conv2D(3, 4, 3)(x), "conv2d"),
        (lambda x: nn.Conv2D(3, 4, 3, groups=2), "groups"),
        (lambda x: nn.Conv2D(3, 4, 3, weight_attr=False), "weight_attr"),
        (lambda x: nn.Conv2D(3, 4, 3, padding_mode="mirror"), "padding_mode"),
        (lambda x: nn.BatchNorm2D(3)(x), "BatchNorm2D"),
        (lambda x: nn.BatchNorm2D(3, data_format="NCL"), "data_format"),
        (lambda x: nn.LayerNorm(7)(x), "normalized_shape"),
        (lambda x: nn.Dropout(1.5)(x), "dropout"),
        (lambda x: nn.Embedding(0, 3), "positive"),
        (lambda x: nn.MultiHeadAttention(8, 3), "num_heads"),
        (lambda x: nn.CrossEntropyLoss(reduction="max"), "reduction"),
    ],
)
def test_wrong_arguments_are_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        compute(call, x=rand(2, 3))
