"""CTC, hierarchical sigmoid, alpha dropout, distances and deformable convolution as layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_program import Built, compute

from fleetx import static
from fleetx.static import nn
from fleetx.static.nn import functional as F
from fleetx.static.nn.deformable_conv import DeformConv2D, deform_conv2d

RNG = np.random.default_rng(11)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


CTC = {
    "log_probs": rand(5, 2, 4),
    "labels": np.array([[1, 2, 2], [3, 0, 0]], "int32"),
    "input_lengths": np.array([5, 4]),
    "label_lengths": np.array([3, 1]),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc(reduction: str) -> None:
    def build(**inputs):
        loss = F.ctc_loss(**inputs, reduction=reduction)
        layer = nn.CTCLoss(reduction=reduction)(*inputs.values())
        return [loss, layer, *static.gradients([loss], [inputs["log_probs"]])]

    loss, layer, gradient = compute(build, **CTC)
    x = torch.from_numpy(CTC["log_probs"]).requires_grad_()
    rest = [torch.from_numpy(value) for value in list(CTC.values())[1:]]
    expected = torch.nn.functional.ctc_loss(x.log_softmax(-1), *rest, reduction=reduction)
    expected.sum().backward()
    np.testing.assert_allclose(loss, expected.detach().numpy(), rtol=1e-5)
    np.testing.assert_array_equal(layer, loss)
    np.testing.assert_allclose(gradient, x.grad.numpy(), atol=1e-6)


def test_hierarchical_sigmoid() -> None:
    feeds = {"input": rand(4, 3), "label": np.array([[0], [1], [4], [2]])}
    weight, bias = rand(4, 3), rand(4, 1)

    def build(input, label):
        layer = nn.HSigmoidLoss(3, 5)
        free = nn.HSigmoidLoss(3, 5, bias_attr=False)
        function = F.hsigmoid_loss(input, label, 5, layer.weight, layer.bias)
        build.names = layer.weight.name, layer.bias.name, free.weight.name
        return [layer(input, label), function, free(input, label)]

    built = Built(build, feeds)
    for name, value in zip(build.names, (weight, bias, weight), strict=True):
        built.set(name, value)
    layer, function, free = built.run()
    assert layer.shape == (4, 1)
    np.testing.assert_array_equal(layer, function)
    # Class c is leaf c + 5 of a complete binary tree whose inner nodes are 1 to 4.
    for row, (x, label) in enumerate(zip(feeds["input"], feeds["label"][:, 0], strict=True)):
        for found, offset in ((layer, bias[:, 0]), (free, np.zeros(4))):
            # Leaves 5 to 7 are a level higher; Paddle counts log 2 for the level that they lack.
            node, total = int(label) + 5, np.log(2) * (label + 5 < 8)
            while node > 1:
                score = x @ weight[node // 2 - 1] + offset[node // 2 - 1]
                total += np.log1p(np.exp(score)) - (node % 2) * score
                node //= 2
            np.testing.assert_allclose(found[row, 0], total, rtol=1e-5)


def test_a_custom_tree_needs_both_parts() -> None:
    def build(input, label):
        layer = nn.HSigmoidLoss(3, 4, is_custom=True)
        assert layer.weight.shape == (4, 3)
        with pytest.raises(ValueError, match="path_table and path_code together, or neither"):
            layer(input, label, path_table=label)
        return input

    compute(build, input=rand(1, 3), label=np.array([[0]]))
    with pytest.raises(
        ValueError, match="num_classes of HSigmoidLoss must be at least 2, but is 1"
    ):
        nn.HSigmoidLoss(3, 1)


def test_alpha_dropout() -> None:
    x = RNG.standard_normal((2, 20000)).astype("float32")

    def build(x):
        layer = nn.AlphaDropout(0.3)
        dropped = layer(x)
        layer.eval()
        return [dropped, layer(x), F.alpha_dropout(x, 1), *static.gradients([dropped], [x])]

    dropped, kept, none, gradient = compute(build, x=x)
    np.testing.assert_array_equal(kept, x)
    np.testing.assert_array_equal(none, np.zeros_like(x))
    limit = -1.7580993408473766
    factor = (0.7 * (1 + 0.3 * limit**2)) ** -0.5
    lost = gradient == 0
    np.testing.assert_allclose(dropped[lost], factor * limit * 0.7, rtol=1e-5)
    np.testing.assert_allclose(
        dropped[~lost], factor * (x[~lost] - 0.3 * limit), rtol=1e-4, atol=1e-5
    )
    assert 0.28 < lost.mean() < 0.32
    with pytest.raises(ValueError, match="p of alpha_dropout must be between 0 and 1, but is 2"):
        compute(lambda x: F.alpha_dropout(x, 2), x=x)
    with pytest.raises(TypeError, match="p of alpha_dropout must be a number, not str"):
        compute(lambda x: F.alpha_dropout(x, "x"), x=x)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("keepdim", [True, False])
def test_pairwise_distance(p: float, keepdim: bool) -> None:
    x, y = rand(3, 4), rand(3, 4)
    found = compute(nn.PairwiseDistance(p, keepdim=keepdim), x=x, y=y)
    layer = torch.nn.PairwiseDistance(p, keepdim=keepdim)
    np.testing.assert_allclose(
        found, layer(torch.from_numpy(x), torch.from_numpy(y)).numpy(), rtol=1e-5
    )


def test_deformable_convolution() -> None:
    x, offset, mask = rand(2, 4, 6, 6), np.zeros((2, 18, 3, 3), "float32"), np.ones((2, 9, 3, 3))
    weight, bias = rand(3, 2, 3, 3), rand(3)
    settings = {"stride": 2, "padding": 1, "groups": 2}

    def build(x, offset, mask, weight, bias):
        layer = DeformConv2D(4, 3, 3, **{**settings, "groups": 1})
        return [
            deform_conv2d(x, offset, weight, bias, **settings),
            deform_conv2d(x, offset, weight, **settings, mask=mask),
            layer(x, offset, mask) - layer(x, offset),
        ]

    feeds = {"x": x, "offset": offset, "mask": mask.astype("float32") / 2}
    weight = rand(4, 2, 3, 3)
    bias = rand(4)
    plain, masked, layers = compute(build, **feeds, weight=weight, bias=bias)
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(x), torch.from_numpy(weight), **settings
    ).numpy()
    np.testing.assert_allclose(plain, expected + bias[:, None, None], atol=1e-5)
    np.testing.assert_allclose(masked, expected / 2, atol=1e-5)
    assert np.abs(layers).max() > 0.01
    with pytest.raises(ValueError, match="needs a mask, or modulated=False"):
        compute(lambda x: static.layers.deformable_conv(x, x, None, 2, 3), x=x)
    with pytest.raises(ValueError, match="in_channels 3 of DeformConv2D must be divisible"):
        DeformConv2D(3, 2, 3, groups=2)
