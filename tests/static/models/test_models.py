"""Image classifiers: shapes, parameter names and counts as Paddle 2.6.2 has them, and training."""

from __future__ import annotations

import numpy as np
import pytest
from run_program import Built

from fleetx import static
from fleetx.static import models, nn

# (model, keywords, entries of the state dict, ops of the program): counted in Paddle 2.6.2, whose
# programs have one more op (reshape2) for each bias of a convolution.
COUNTS = [
    ("LeNet", {}, 10, 15),
    ("resnet18", {}, 102, 70),
    ("resnet50", {}, 267, 176),
    ("resnext50_32x4d", {}, 267, 176),
    ("wide_resnet50_2", {}, 267, 176),
    ("vgg11", {}, 22, 41),
    ("vgg16", {"batch_norm": True}, 84, 69),
    ("mobilenet_v1", {}, 137, 85),
    ("mobilenet_v2", {}, 262, 154),
    ("mobilenet_v2", {"scale": 0.5}, 262, 154),
]


def build(name, shape, **kwargs):
    main = static.Program()
    with static.program_guard(main, static.Program()), static.unique_name.guard():
        x = main.global_block().create_var(name="x", shape=shape, dtype="float32", is_data=True)
        net = getattr(models, name)(**kwargs)
        return main, net, net(x)


@pytest.mark.parametrize(("name", "kwargs", "entries", "ops"), COUNTS)
def test_sizes(name, kwargs, entries, ops):
    shape = [-1, 1, 28, 28] if name == "LeNet" else [-1, 3, 224, 224]
    main, net, out = build(name, shape, **kwargs)
    assert len(net.state_dict()) == entries
    assert len(main.global_block().ops) == ops
    assert out.shape == (-1, 10 if name == "LeNet" else 1000)


def test_parameters_of_resnet_have_paddles_places_and_names():
    _, net, _ = build("resnet50", [-1, 3, 224, 224])
    names = {place: p.name for place, p in net.state_dict().items()}
    assert names["conv1.weight"] == "conv2d_0.w_0"
    assert names["bn1._variance"] == "batch_norm2d_0.w_2"
    assert names["layer1.0.downsample.0.weight"] == "conv2d_1.w_0"
    assert names["layer1.0.conv1.weight"] == "conv2d_2.w_0"
    assert names["layer4.2.bn3.bias"] == "batch_norm2d_52.b_0"
    assert names["fc.weight"] == "linear_0.w_0"
    assert sum(np.prod(p.shape) for p in net.parameters() if p.trainable) == 25_557_032


def test_parameters_of_mobilenet_have_paddles_places():
    _, net, _ = build("mobilenet_v1", [-1, 3, 224, 224])
    assert "conv2_1._depthwise_conv.0.weight" in net.state_dict()
    _, net, _ = build("mobilenet_v2", [-1, 3, 224, 224])
    assert "features.1.conv.0.0.weight" in net.state_dict()
    assert "classifier.1.bias" in net.state_dict()


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "mobilenet_v1", "mobilenet_v2"])
def test_models_without_a_head_give_features(name):
    _, net, out = build(name, [-1, 3, 64, 64], num_classes=0, with_pool=False)
    assert out.shape[2:] == (2, 2)
    assert not any("fc" in place or "classifier" in place for place in net.state_dict())


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
def test_resnet_depths(depth):
    _, net, _ = build(f"resnet{depth}", [-1, 3, 32, 32], num_classes=3)
    convolutions = [
        layer
        for place, layer in net.named_sublayers()
        if isinstance(layer, nn.Conv2D) and "downsample" not in place
    ]
    assert len(convolutions) + 1 == depth


@pytest.mark.parametrize("name", ["resnet50", "vgg16", "mobilenet_v1", "mobilenet_v2"])
def test_pretrained_says_how_to_load_weights(name):
    with pytest.raises(ValueError, match=f"{name}.*set_state_dict"):
        getattr(models, name)(pretrained=True)


def test_an_unknown_depth_is_refused():
    from fleetx.static.models.resnet import BasicBlock

    with pytest.raises(ValueError, match="17"):
        models.ResNet(BasicBlock, 17)


@pytest.mark.slow
def test_resnet18_learns():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3, 32, 32)).astype("float32")
    y = np.array([[0], [1], [2], [3]])

    def network(x, y):
        loss = nn.functional.cross_entropy(models.resnet18(num_classes=4)(x), y)
        static.append_backward(loss)
        return loss

    built = Built(network, {"x": x, "y": y})
    names = [p.name for p in built.main.all_parameters() if p.trainable]
    losses = []
    for _ in range(4):
        loss, *grads = built.run([built.outputs[0], *(f"{n}@GRAD" for n in names)])
        losses.append(loss.item())
        for name, grad in zip(names, grads, strict=True):
            built.set(name, built.get(name) - 0.002 * grad)
    assert losses[-1] < losses[0]
