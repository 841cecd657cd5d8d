"""Loss and metric ops: values against NumPy or torch, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_check import check_op

from fleetx import static
from fleetx.static import layers

RNG = np.random.default_rng(2)


def rand(*shape):
    return RNG.standard_normal(shape)


def probabilities(*shape):
    x = RNG.uniform(0.1, 1.0, shape)
    return x / x.sum(-1, keepdims=True)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis):
    x = rand(3, 4)
    check_op("softmax", {"X": x}, {"axis": axis}, {"Out": F.softmax(t(x), axis).numpy()})
    expected = F.log_softmax(t(x), axis).numpy()
    check_op("log_softmax", {"X": x}, {"axis": axis}, {"Out": expected})


@pytest.mark.parametrize("trailing", [True, False])
def test_cross_entropy_of_probabilities(trailing):
    x, label = probabilities(4, 3), np.array([2, 0, 1, 2])
    expected, given = -np.log(x[np.arange(4), label]), label
    if trailing:
        expected, given = expected[:, None], label[:, None]
    check_op("cross_entropy2", {"X": x, "Label": given}, {}, {"Y": expected}, grad_from=["Y"])
    check_op("cross_entropy", {"X": x, "Label": given}, {}, {"Y": expected})


@pytest.mark.parametrize("ignored", [-100, 1])
def test_cross_entropy_leaves_ignored_labels_out(ignored):
    x, label = probabilities(3, 3), np.array([[2], [ignored], [0]])
    expected = -np.log([[x[0, 2]], [1.0], [x[2, 0]]])
    inputs, attrs = {"X": x, "Label": label}, {"ignore_index": ignored}
    check_op("cross_entropy2", inputs, attrs, {"Y": expected}, grad_from=["Y"])
    check_op("cross_entropy", inputs, attrs, {"Y": expected})


def test_cross_entropy_with_distributions():
    x, label = probabilities(3, 4), probabilities(3, 4)
    expected = -(label * np.log(x)).sum(1, keepdims=True)
    attrs = {"soft_label": True}
    check_op("cross_entropy", {"X": x, "Label": label}, attrs, {"Y": expected})


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("ignored", [-100, 1])
def test_softmax_with_cross_entropy(axis, ignored):
    x = rand(2, 3, 4)
    shape = [2, 3, 4]
    shape[axis] = 1
    label = RNG.integers(0, 3, shape)
    log_prob = F.log_softmax(t(x), axis).numpy()
    loss = -np.take_along_axis(log_prob, label, axis) * (label != ignored)
    expected = {"Softmax": np.exp(log_prob), "Loss": loss}
    inputs = {"Logits": x, "Label": label}
    attrs = {"axis": axis, "ignore_index": ignored}
    check_op("softmax_with_cross_entropy", inputs, attrs, expected, grad_from=["Loss"])


def test_softmax_with_cross_entropy_of_distributions_and_of_probabilities():
    x, label = rand(3, 4), probabilities(3, 4)
    loss = -(label * F.log_softmax(t(x), 1).numpy()).sum(1, keepdims=True)
    inputs = {"Logits": x, "Label": label}
    check_op("softmax_with_cross_entropy", inputs, {"soft_label": True}, {"Loss": loss})
    x, label = probabilities(3, 4), np.array([[1], [0], [3]])
    loss = -np.log(np.take_along_axis(x, label, 1))
    inputs, attrs = {"Logits": x, "Label": label}, {"use_softmax": False}
    check_op("softmax_with_cross_entropy", inputs, attrs, {"Loss": loss}, grad_from=["Loss"])


@pytest.mark.parametrize("normalize", [False, True])
def test_sigmoid_cross_entropy_with_logits(normalize):
    x, label = rand(3, 2), np.array([[0.0, 1.0], [-1.0, 0.3], [1.0, -1.0]])
    kept = label != -1.0
    loss = F.binary_cross_entropy_with_logits(t(x), t(label), reduction="none").numpy() * kept
    expected = loss / kept.sum() if normalize else loss
    attrs = {"normalize": normalize, "ignore_index": -1}
    inputs = {"X": x, "Label": label}
    check_op("sigmoid_cross_entropy_with_logits", inputs, attrs, {"Out": expected})


def test_sigmoid_cross_entropy_with_weights_of_positives():
    x, label, weight = rand(3, 2), RNG.integers(0, 2, (3, 2)).astype(float), np.array([2.0, 5.0])
    expected = F.binary_cross_entropy_with_logits(
        t(x), t(label), reduction="none", pos_weight=t(weight)
    )
    inputs = {"X": x, "Label": label, "pos_weight": label * (weight - 1) + 1}
    check_op("sigmoid_cross_entropy_with_logits", inputs, {}, {"Out": expected.numpy()})


def test_bce_and_log_loss():
    x, label = RNG.uniform(0.1, 0.9, (4, 1)), RNG.integers(0, 2, (4, 1)).astype(float)
    expected = F.binary_cross_entropy(t(x), t(label), reduction="none").numpy()
    check_op("bce_loss", {"X": x, "Label": label}, {}, {"Out": expected})
    expected = -label * np.log(x + 0.01) - (1 - label) * np.log(1.01 - x)
    inputs = {"Predicted": x, "Labels": label}
    check_op("log_loss", inputs, {"epsilon": 0.01}, {"Loss": expected})


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(reduction, weighted):
    x, label, weight = rand(4, 3), np.array([0, 2, 1, 1]), RNG.uniform(0.5, 2, 3)
    kwargs = {"weight": t(weight)} if weighted else {}
    expected = F.nll_loss(t(x), t(label), ignore_index=2, reduction=reduction, **kwargs).numpy()
    inputs = {"X": x, "Label": label} | ({"Weight": weight} if weighted else {})
    attrs = {"ignore_index": 2, "reduction": reduction}
    expected = expected if reduction == "none" else expected.reshape(1)
    check_op("nll_loss", inputs, attrs, {"Out": expected})


@pytest.mark.parametrize("reduction", ["none", "mean", "sum", "batchmean"])
def test_kldiv_loss(reduction):
    x, target = rand(3, 4), probabilities(3, 4)
    target[0, 0] = 0.0
    each = F.kl_div(t(x), t(target), reduction="none").numpy()
    expected = {
        "none": each,
        "mean": each.mean(keepdims=True).reshape(1),
        "sum": each.sum(keepdims=True).reshape(1),
        "batchmean": each.sum(keepdims=True).reshape(1) / 3,
    }[reduction]
    attrs = {"reduction": reduction}
    check_op("kldiv_loss", {"X": x, "Target": target}, attrs, {"Loss": expected})


def test_label_smooth():
    x, prior = np.eye(3)[[0, 2]], probabilities(1, 3)
    check_op("label_smooth", {"X": x}, {"epsilon": 0.1}, {"Out": x * 0.9 + 0.1 / 3})
    expected = x * 0.9 + 0.1 * prior
    inputs = {"X": x, "PriorDist": prior}
    check_op("label_smooth", inputs, {"epsilon": 0.1}, {"Out": expected})


def test_teacher_student_sigmoid_loss():
    x, label = rand(4, 1), np.array([[-2.0], [-1.0], [0.4], [1.7]])
    base = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    expected = base.copy()
    expected[1] -= x[1]
    expected[2] += base[2] - x[2] * 0.4
    expected[3] += base[3] - x[3] - x[3] * 0.7
    check_op("teacher_student_sigmoid_loss", {"X": x, "Label": label}, {}, {"Y": expected})


def test_smooth_l1_loss_with_weights():
    x, y, inside, outside = rand(3, 4), rand(3, 4), RNG.uniform(0, 1, (3, 4)), rand(3, 4)
    difference = (x - y) * inside
    errors = F.smooth_l1_loss(t(difference), torch.zeros(3, 4), reduction="none", beta=0.25)
    expected = (errors.numpy() * outside).sum(1, keepdims=True)
    inputs = {"X": x, "Y": y, "InsideWeight": inside, "OutsideWeight": outside}
    check_op("smooth_l1_loss", inputs, {"sigma": 2.0}, {"Out": expected}, grad_from=["Out"])


def test_huber_and_hinge_losses():
    x, y = rand(4, 2), rand(4, 2)
    expected = F.huber_loss(t(x), t(y), reduction="none", delta=0.7).numpy()
    check_op("huber_loss", {"X": x, "Y": y}, {"delta": 0.7}, {"Out": expected, "Residual": y - x})
    labels = RNG.integers(0, 2, (4, 2)).astype(float)
    margin = (2 * labels - 1) * x
    inputs = {"Logits": x, "Labels": labels}
    check_op("hinge_loss", inputs, {}, {"Loss": np.maximum(1 - margin, 0)})
    expected = np.where(margin < -1, -4 * margin, np.maximum(1 - margin, 0) ** 2)
    check_op("modified_huber_loss", {"X": x, "Y": labels}, {}, {"Out": expected})


def test_ranking_losses():
    label, left, right = RNG.integers(0, 2, (4, 1)).astype(float), rand(4, 1), rand(4, 1)
    expected = np.log1p(np.exp(left - right)) - label * (left - right)
    check_op("rank_loss", {"Label": label, "Left": left, "Right": right}, {}, {"Out": expected})
    signs = 2 * label - 1
    expected = np.maximum(0.1 - signs * (left - right), 0)
    inputs = {"X1": left, "X2": right, "Label": signs}
    found = check_op(
        "margin_rank_loss", inputs, {"margin": 0.1}, {"Out": expected}, grad_from=["Out"]
    )
    np.testing.assert_array_equal(found["Activated"][0], (expected > 0).astype(float))
    x, items = rand(3, 4), np.array([[1], [0], [3]])
    gaps = np.log1p(np.exp(x - np.take_along_axis(x, items, 1)))
    np.put_along_axis(gaps, items, 0.0, 1)
    expected = gaps.sum(1, keepdims=True) / 3
    check_op("bpr_loss", {"X": x, "Label": items}, {}, {"Y": expected})


def test_center_loss_moves_the_centres():
    x, label, centers = rand(3, 2), np.array([[1], [1], [0]]), rand(3, 2)
    old = centers.copy()
    difference = x - old[label[:, 0]]
    moved = old.copy()
    moved[1] += 0.5 * difference[:2].sum(0) / 3
    moved[0] += 0.5 * difference[2] / 2
    inputs = {"X": x, "Label": label, "Centers": centers, "CenterUpdateRate": np.array([0.5])}
    expected = {"Loss": (difference**2).sum(1, keepdims=True) / 2, "CentersOut": moved}
    check_op("center_loss", inputs, {"cluster_num": 3}, expected, grad_of=[])
    check_op("center_loss", inputs, {"need_update": False}, grad_of=["X"], grad_from=["Loss"])


def test_accuracy():
    indices, label = np.array([[1, 0], [2, 1], [0, 2]]), np.array([[0], [0], [0]])
    inputs = {"Out": np.zeros((3, 2)), "Indices": indices, "Label": label}
    expected = {"Accuracy": [np.array([2 / 3], "float32")]}
    found = check_op("accuracy", inputs, {}, expected, counts={"Correct": 1, "Total": 1})
    assert found["Correct"][0].tolist() == [2]
    assert found["Total"][0].tolist() == [3]


def exact_auc(scores, labels):
    pairs = [(p, n) for p in scores[labels == 1] for n in scores[labels == 0]]
    return np.mean([1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs])


def test_auc_is_the_share_of_ordered_pairs():
    steps = 50
    scores, labels = (RNG.integers(0, steps, 40) + 0.5) / steps, RNG.integers(0, 2, 40)
    inputs = {
        "Predict": np.stack([1 - scores, scores], 1),
        "Label": labels[:, None],
        "StatPos": np.zeros((1, steps + 1), "int64"),
        "StatNeg": np.zeros((1, steps + 1), "int64"),
    }
    attrs = {"num_thresholds": steps, "slide_steps": 0}
    found = check_op("auc", inputs, attrs)
    np.testing.assert_allclose(found["AUC"][0], [exact_auc(scores, labels)])
    assert found["StatPosOut"][0].sum() == labels.sum()


def test_mean_iou():
    found, true = np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])
    expected = {
        "OutMeanIou": np.array([(1 + 0.5 + 0.5) / 3], "float32"),
        "OutWrong": np.array([0, 1, 1], "int32"),
        "OutCorrect": np.array([1, 1, 1], "int32"),
    }
    inputs = {"Predictions": found, "Labels": true}
    check_op("mean_iou", inputs, {"num_classes": 3}, expected)
    more = {**inputs, "InWrongs": [np.array([1, 0, 0], "int32")]}
    found = check_op("mean_iou", more, {"num_classes": 3})
    assert found["OutWrong"][0].tolist() == [1, 1, 1]


def test_auc_without_a_window_is_the_same_twice():
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        predict = layers.data("predict", [2])
        label = layers.data("label", [1], dtype="int64")
        both = layers.auc(predict, label, num_thresholds=50, slide_steps=0)[:2]
    exe = static.Executor()
    random = np.random.default_rng(1)
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        for _ in range(2):
            positive = random.random((8, 1), "float32")
            feed = {
                "predict": np.concatenate([1 - positive, positive], 1),
                "label": random.integers(0, 2, (8, 1)),
            }
            whole, window = exe.run(main, feed=feed, fetch_list=list(both))
            np.testing.assert_array_equal(whole, window)
