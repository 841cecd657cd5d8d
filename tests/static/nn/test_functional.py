"""Functions of the second generation against torch, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as T
from run_program import Built, compute

from fleetx import static
from fleetx.static.nn import functional as F

RNG = np.random.default_rng(2)


def rand(*shape):
    return RNG.standard_normal(shape).astype("float32")


def unit(*shape):
    return RNG.uniform(0.1, 0.9, shape).astype("float32")


def t(array, grad=False):
    return torch.from_numpy(np.array(array)).requires_grad_(grad)


def same_loss(ours, theirs, **feeds):
    """Compare a loss and its gradient in `x`; weights of rows make the gradient uneven."""

    def build(**inputs):
        loss = ours(**inputs)
        return [loss, *static.gradients([loss], [inputs["x"]])]

    found = compute(build, **feeds)
    tensors = {k: t(v, k == "x") for k, v in feeds.items()}
    expected = theirs(**tensors)
    expected.sum().backward()
    np.testing.assert_allclose(
        found[0].ravel(), expected.detach().numpy().ravel(), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(found[1], tensors["x"].grad.numpy(), rtol=1e-3, atol=1e-5)


REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


@REDUCTIONS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_cross_entropy(reduction, weighted, shape):
    labels = RNG.integers(0, 4, shape)
    feeds = {"x": rand(5, 4), "y": labels} | ({"w": unit(4)} if weighted else {})

    def theirs(x, y, w=None):
        return T.cross_entropy(x, y.reshape(-1), w, reduction=reduction)

    def ours(x, y, w=None):
        return F.cross_entropy(x, y, w, reduction=reduction)

    same_loss(ours, theirs, **feeds)


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_with_ignored_labels(weighted):
    feeds = {"x": rand(5, 4), "y": np.array([0, 2, 2, 1, 3])}
    feeds |= {"w": unit(4)} if weighted else {}

    def theirs(x, y, w=None):
        return T.cross_entropy(x, y, w, ignore_index=2)

    def ours(x, y, w=None):
        return F.cross_entropy(x, y, w, ignore_index=2)

    same_loss(ours, theirs, **feeds)


def test_cross_entropy_along_another_axis():
    feeds = {"x": rand(2, 4, 3), "y": RNG.integers(0, 4, (2, 3)), "w": unit(4)}
    same_loss(
        lambda x, y, w: F.cross_entropy(x, y, w, axis=1),
        lambda x, y, w: T.cross_entropy(x, y, w),
        **feeds,
    )


def test_cross_entropy_with_distributions_and_smoothing():
    z = unit(5, 4)
    z /= z.sum(1, keepdims=True)
    same_loss(
        lambda x, z: F.cross_entropy(x, z, soft_label=True),
        lambda x, z: T.cross_entropy(x, z),
        x=rand(5, 4),
        z=z,
    )
    same_loss(
        lambda x, z, w: F.cross_entropy(x, z, w, soft_label=True, reduction="sum"),
        lambda x, z, w: ((z * -T.log_softmax(x, 1)).sum(1) * (z @ w)).sum(),
        x=rand(5, 4),
        z=z,
        w=unit(4),
    )
    same_loss(
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        lambda x, y: T.cross_entropy(x, y, label_smoothing=0.1),
        x=rand(5, 4),
        y=RNG.integers(0, 4, 5),
    )
    same_loss(
        lambda x, y: F.cross_entropy(x, y, use_softmax=False),
        lambda x, y: T.nll_loss(torch.log(x), y),
        x=unit(5, 4),
        y=RNG.integers(0, 4, 5),
    )


@REDUCTIONS
@pytest.mark.parametrize(
    ("name", "other", "kwargs"),
    [
        ("mse_loss", "mse_loss", {}),
        ("l1_loss", "l1_loss", {}),
        ("smooth_l1_loss", "huber_loss", {"delta": 0.7}),
        ("binary_cross_entropy", "binary_cross_entropy", {}),
        ("binary_cross_entropy_with_logits", "binary_cross_entropy_with_logits", {}),
        ("kl_div", "kl_div", {}),
    ],
)
def test_losses_of_two_tensors(name, other, kwargs, reduction):
    feeds = {"x": unit(4, 3), "y": unit(4, 3)}
    each = lambda x, y: getattr(T, other)(x, y, reduction="none", **kwargs)  # noqa: E731
    reduce = {"none": lambda v: v, "mean": torch.mean, "sum": torch.sum}[reduction]
    same_loss(
        lambda x, y: getattr(F, name)(x, y, reduction=reduction, **kwargs),
        lambda x, y: reduce(each(x, y)),
        **feeds,
    )


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy"])
def test_a_loss_with_an_unknown_reduction_appends_nothing(name):
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = static.data("x", [2, 3]), static.data("y", [2, 3])
        with pytest.raises(ValueError, match=f"reduction.*{name}"):
            getattr(F, name)(x, y, reduction="middle")
    assert not main.global_block().ops


def test_binary_cross_entropy_with_weights():
    same_loss(
        lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, w, "sum", p),
        lambda x, y, w, p: T.binary_cross_entropy_with_logits(
            x, y, w, reduction="sum", pos_weight=p
        ),
        x=rand(4, 3),
        y=RNG.integers(0, 2, (4, 3)).astype("float32"),
        w=unit(3),
        p=unit(3) * 4,
    )
    same_loss(
        lambda x, y, w: F.binary_cross_entropy(x, y, w),
        lambda x, y, w: T.binary_cross_entropy(x, y, w),
        x=unit(4, 3),
        y=unit(4, 3),
        w=unit(4, 3),
    )


def test_nll_and_kl_div():
    same_loss(
        lambda x, y, w: F.nll_loss(x, y, w, ignore_index=1),
        lambda x, y, w: T.nll_loss(x, y, w, ignore_index=1),
        x=rand(4, 3, 2),
        y=RNG.integers(0, 3, (4, 2)),
        w=unit(3),
    )
    same_loss(
        lambda x, y: F.kl_div(x, y, "batchmean"),
        lambda x, y: T.kl_div(x, y, reduction="batchmean"),
        x=rand(4, 3),
        y=unit(4, 3),
    )


def test_losses_of_pairs_and_triplets():
    signs = np.where(RNG.random(4) < 0.5, -1.0, 1.0).astype("float32")
    same_loss(
        lambda x, o, s: F.margin_ranking_loss(x, o, s, margin=0.3),
        lambda x, o, s: T.margin_ranking_loss(x, o, s, margin=0.3),
        x=rand(4),
        o=rand(4),
        s=signs,
    )
    same_loss(
        lambda x, s: F.hinge_embedding_loss(x, s, margin=0.8),
        lambda x, s: T.hinge_embedding_loss(x, s, margin=0.8),
        x=unit(4),
        s=signs,
    )
    same_loss(
        lambda x, o, s: F.cosine_embedding_loss(x, o, s, margin=0.1),
        lambda x, o, s: T.cosine_embedding_loss(x, o, s, margin=0.1),
        x=rand(4, 3),
        o=rand(4, 3),
        s=signs,
    )
    for swap in (False, True):
        same_loss(
            lambda x, p, n, swap=swap: F.triplet_margin_loss(x, p, n, swap=swap),
            lambda x, p, n, swap=swap: T.triplet_margin_loss(x, p, n, swap=swap),
            x=rand(4, 3),
            p=rand(4, 3),
            n=rand(4, 3),
        )


def test_sigmoid_focal_loss():
    def theirs(x, y, n):
        p = torch.sigmoid(x)
        ce = T.binary_cross_entropy_with_logits(x, y, reduction="none")
        right = p * y + (1 - p) * (1 - y)
        return (ce * (1 - right) ** 2 * (0.25 * y + 0.75 * (1 - y)) / n).sum()

    same_loss(
        lambda x, y, n: F.sigmoid_focal_loss(x, y, n),
        theirs,
        x=rand(4, 3),
        y=RNG.integers(0, 2, (4, 3)).astype("float32"),
        n=np.array([2.0], "float32"),
    )


def test_square_error_log_and_label_smooth():
    x, y = unit(4, 1), RNG.integers(0, 2, (4, 1)).astype("float32")
    same_loss(lambda x, y: F.square_error_cost(x, y), lambda x, y: (x - y) ** 2, x=x, y=y)
    same_loss(
        lambda x, y: F.log_loss(x, y),
        lambda x, y: -y * torch.log(x + 1e-4) - (1 - y) * torch.log(1 - x + 1e-4),
        x=x,
        y=y,
    )
    found = compute(lambda z: F.label_smooth(z, epsilon=0.2), z=np.eye(4, dtype="float32"))
    np.testing.assert_allclose(found, np.eye(4) * 0.8 + 0.05, rtol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: F.normalize(x), lambda x: T.normalize(x)),
        (lambda x: F.normalize(x, p=1, axis=-1), lambda x: T.normalize(x, 1, -1)),
        (lambda x: F.softmax(x, 1), lambda x: T.softmax(x, 1)),
        (
            lambda x: F.interpolate(x, scale_factor=1.5),
            lambda x: T.interpolate(x, scale_factor=1.5),
        ),
        (
            lambda x: F.interpolate(x, size=[5, 7], mode="bilinear"),
            lambda x: T.interpolate(x, (5, 7), mode="bilinear"),
        ),
        (
            lambda x: F.interpolate(x, size=[5, 7], mode="bicubic", align_corners=True),
            lambda x: T.interpolate(x, (5, 7), mode="bicubic", align_corners=True),
        ),
        (
            lambda x: F.interpolate(x, size=[2, 2], mode="area"),
            lambda x: T.interpolate(x, (2, 2), mode="area"),
        ),
        (lambda x: F.pad(x, [1, 2, 0, 1]), lambda x: T.pad(x, (1, 2, 0, 1))),
        (
            lambda x: F.pad(x, [0, 0, 1, 1, 2, 0, 0, 3], value=2.0),
            lambda x: T.pad(x, (0, 3, 2, 0, 1, 1, 0, 0), value=2.0),
        ),
        (
            lambda x: F.pad(x, [1, 1, 2, 2], mode="circular"),
            lambda x: T.pad(x, (1, 1, 2, 2), mode="circular"),
        ),
        (lambda x: F.unfold(x, 2, paddings=1), lambda x: T.unfold(x, 2, padding=1)),
        (
            lambda x: F.fold(F.unfold(x, 2), [3, 4], 2),
            lambda x: T.fold(T.unfold(x, 2), (3, 4), 2),
        ),
        (lambda x: F.cosine_similarity(x, x * x), lambda x: T.cosine_similarity(x, x * x)),
        (lambda x: F.glu(x, 1), lambda x: T.glu(x, 1)),
        (lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), lambda x: x),
        (lambda x: F.instance_norm(x), lambda x: T.instance_norm(x)),
        (lambda x: F.group_norm(x, 2), lambda x: T.group_norm(x, 2)),
        (lambda x: F.relu_(x), lambda x: T.relu(x)),
    ],
)
def test_functions_of_images(ours, theirs):
    x = rand(2, 4, 3, 4)
    np.testing.assert_allclose(compute(ours, x=x), theirs(t(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_sizes_and_paddings_from_variables():
    x = rand(1, 2, 3, 3)
    size = np.array([6, 5], "int32")
    expected = T.interpolate(t(x), (6, 5)).numpy()
    found = compute(lambda x, s: F.interpolate(x, size=s), x=x, s=size)
    np.testing.assert_allclose(found, expected)
    found = compute(lambda x, s: F.interpolate(x, size=[s, 5]), x=x, s=size[:1])
    np.testing.assert_allclose(found, expected)
    found = compute(lambda x, p: F.pad(x, p), x=x, p=np.array([1, 0, 2, 0], "int32"))
    np.testing.assert_allclose(found, T.pad(t(x), (1, 0, 2, 0)).numpy())


def test_linear_embedding_one_hot_bilinear():
    x, w, b = rand(2, 3), rand(3, 4), rand(4)
    found = compute(lambda x, w, b: F.linear(x, w, b), x=x, w=w, b=b)
    np.testing.assert_allclose(found, x @ w + b, rtol=1e-5, atol=1e-6)
    ids = np.array([2, 0])
    np.testing.assert_allclose(compute(lambda i, w: F.embedding(i, w), i=ids, w=w), w[ids])
    np.testing.assert_array_equal(compute(lambda i: F.one_hot(i, 4), i=ids), np.eye(4)[ids])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    q, k, v = rand(2, 4, 2, 3), rand(2, 4, 2, 3), rand(2, 4, 2, 3)
    found = compute(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), q=q, k=k, v=v
    )
    heads = [t(a).transpose(1, 2) for a in (q, k, v)]
    expected = T.scaled_dot_product_attention(*heads, is_causal=causal).transpose(1, 2)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_dropout_with_a_program_seed_repeats_itself():
    x = np.ones((20, 20), "float32")

    def build(x):
        static.default_main_program().random_seed = 7
        return F.dropout(x, 0.5)

    built = Built(build, {"x": x})
    first, second = built.run()[0], built.run()[0]
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: F.cross_entropy(x, x, reduction="most"), "reduction"),
        (lambda x: F.pad(x, [1, 1], mode="wrap"), "mode"),
        (lambda x: F.interpolate(x), "size or scale_factor"),
        (lambda x: F.interpolate(x, size=[2, 2], mode="linear"), "dimensions"),
        (lambda x: F.softshrink(x, -1.0), "threshold"),
        (lambda x: F.max_pool2d(x, 2, padding="SOME"), "SAME"),
        (lambda x: F.conv2d(x, x, groups=3), "groups"),
        (lambda x: F.dropout(x, axis=7), "axis"),
        (lambda x: F.grid_sample(x, x, mode="cubic"), "mode"),
    ],
)
def test_wrong_arguments_are_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        compute(call, x=rand(2, 4, 3, 4))
