"""ResNet and VGG: the program and the module with the same weights compute and learn the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import fleetx as X
from fleetx import static
from fleetx.applications.resnet import ResNet
from fleetx.applications.vgg import VGG

TINY = {"class_dim": 7, "image_size": 32, "width": 4}


def pictures(count=6, layout="NCHW", size=32):
    shape = (count, 3, size, size) if layout == "NCHW" else (count, size, size, 3)
    return torch.randn(shape), torch.randint(0, 7, (count, 1))


def started(model):
    exe = static.Executor(static.CPUPlace())
    exe.run(model.startup_prog)
    return exe


def run(exe, program, images, labels, fetches):
    feed = {"feed_image": images.numpy(), "feed_label": labels.numpy()}
    return exe.run(program, feed=feed, fetch_list=fetches)


@pytest.mark.parametrize(("depth", "layout"), [(18, "NHWC"), (50, "NCHW")])
def test_resnet_learns_as_its_module_does(depth, layout):
    # Large enough that no statistic of a batch is over a handful of numbers.
    model = X.applications.Resnet50(layout, depth=depth, **TINY | {"image_size": 64})
    exe = started(model)
    module = model.to_module()
    assert isinstance(module, ResNet)
    static.optimizer.Momentum(0.05, 0.9).minimize(model.loss)
    exe.run(model.startup_prog)
    model.load_module_state(module.state_dict())
    start = {key: parameter.detach().clone() for key, parameter in module.named_parameters()}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    images, labels = pictures(layout=layout, size=64)
    planes = images if layout == "NCHW" else images.permute(0, 3, 1, 2)
    for _ in range(2):
        found = run(exe, model.main_prog, images, labels, [model.loss, *model.target])
        scores = module(planes)
        loss = cross_entropy(scores, labels[:, 0])
        np.testing.assert_allclose(found[0], [loss.item()], rtol=1e-4)
        best = scores.topk(5).indices == labels
        np.testing.assert_allclose(found[1], [best[:, 0].float().mean()])
        np.testing.assert_allclose(found[2], [best.any(1).float().mean()])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    state = model.module_state()
    for key, parameter in module.named_parameters():
        # As tensors: a single element of so deep a network is at the mercy of a CPU's rounding.
        change = (parameter.detach() - start[key]).norm()
        assert (state[key] - parameter.detach()).norm() <= 0.02 * change, key


@pytest.mark.parametrize("batch_norm", [False, True])
def test_vgg_computes_as_its_module_does(batch_norm):
    model = X.applications.VGG16(hidden=8, batch_norm=batch_norm, **TINY)
    exe = started(model)
    module = model.to_module().eval()
    assert isinstance(module, VGG)
    images, labels = pictures()
    program = model.main_prog.clone(for_test=True)
    (found,) = run(exe, program, images, labels, [model.loss])
    np.testing.assert_allclose(found, [cross_entropy(module(images), labels[:, 0]).item()], 1e-4)
    assert len(model.checkpoints) == 5


def test_the_published_sizes():
    model = X.applications.Resnet50()
    assert len(model.weights) == 265 + 2
    trained = [p for p in model.parameter_list() if p.trainable]
    assert sum(np.prod(p.shape) for p in trained) == 25_557_032
    assert [tuple(v.shape) for v in model.inputs] == [(-1, 3, 224, 224), (-1, 1)]
    assert len(model.checkpoints) == 3 + 4 + 6 + 3
    assert tuple(model.loss.shape) == (1,)


def test_mlperf_smooths_labels_and_takes_channels_last():
    model = X.applications.Resnet50Mlperf(depth=18, **TINY)
    exe = started(model)
    images, labels = pictures(layout="NHWC")
    module = model.to_module()
    (found,) = run(exe, model.main_prog, images, labels, [model.loss])
    scores = module(images.permute(0, 3, 1, 2))
    wanted = cross_entropy(scores, labels[:, 0], label_smoothing=0.1)
    np.testing.assert_allclose(found, [wanted.item()], rtol=1e-4)


def test_a_model_becomes_the_default_program_and_its_names_stay_its_own():
    first = X.applications.Resnet50(depth=18, **TINY)
    names = [p.name for p in first.parameter_list()]
    model = X.applications.Resnet50(depth=18, **TINY)
    assert static.default_main_program() is model.main_prog
    assert static.default_startup_program() is model.startup_prog
    assert [p.name for p in model.parameter_list()] == names
    before = set(model.main_prog.global_block().vars)
    static.layers.fc(static.layers.relu(model.inputs[0]), 2)
    added = set(model.main_prog.global_block().vars) - before
    assert any(name.startswith("relu_") for name in added)
    assert model.get_loss() is model.loss
    assert model.startup_program() is model.startup_prog
    assert model.main_program() is model.main_prog


def test_targets_are_a_list_with_names():
    model = X.applications.Resnet50(depth=18, **TINY)
    assert [model.loss] + model.target == [model.loss, model.target["acc1"], model.target["acc5"]]
    with pytest.raises(KeyError, match="no target 'auc'; it has: acc1, acc5"):
        model.target["auc"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: X.applications.Resnet50("NWHC"), "data_layout must be one of"),
        (lambda: X.applications.Resnet50(depth=51), r"one of \[18, 34, 50, 101, 152\], but is 51"),
        (lambda: X.applications.Resnet50(class_dim=0), "class_dim must be at least 1, but is 0"),
        (lambda: X.applications.VGG16(depth=12), r"depth of VGG must be one of \[11, 13, 16, 19\]"),
        (lambda: X.applications.VGG16(image_size=16), "image_size of VGG must be at least 32"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
    with pytest.raises(AttributeError, match="no model 'Resnet51'; it has: .*Resnet50"):
        X.applications.Resnet51  # noqa: B018
