"""Metrics in Python, both generations, against scikit-learn's definitions."""

from __future__ import annotations

import numpy as np
import pytest
from run_program import Built
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from fleetx import static
from fleetx.static.metrics import metrics_of_1x, metrics_of_2x

RNG = np.random.default_rng(3)


def batches():
    for _ in range(3):
        yield RNG.random((20, 1)), RNG.integers(0, 2, (20, 1))


@pytest.mark.parametrize("module", [metrics_of_1x, metrics_of_2x])
def test_precision_and_recall(module):
    precision, recall = module.Precision(), module.Recall()
    preds, labels = zip(*batches(), strict=True)
    for p, y in zip(preds, labels, strict=True):
        precision.update(p, y)
        recall.update(p, y)
    value = "eval" if module is metrics_of_1x else "accumulate"
    found, true = np.concatenate(preds).ravel() > 0.5, np.concatenate(labels).ravel()
    assert getattr(precision, value)() == pytest.approx(precision_score(true, found))
    assert getattr(recall, value)() == pytest.approx(recall_score(true, found))
    precision.reset()
    assert getattr(precision, value)() == 0.0


@pytest.mark.parametrize("module", [metrics_of_1x, metrics_of_2x])
def test_auc(module):
    auc = module.Auc(name="auc", num_thresholds=1000)
    scores, labels = (RNG.integers(0, 1000, 60) + 0.5) / 1000, RNG.integers(0, 2, 60)
    for part in (slice(0, 30), slice(30, 60)):
        auc.update(np.stack([1 - scores[part], scores[part]], 1), labels[part, None])
    value = auc.eval() if module is metrics_of_1x else auc.accumulate()
    assert value == pytest.approx(roc_auc_score(labels, scores))
    if module is metrics_of_1x:  # scripts of 1.x take the counts, as lists
        counts = auc._stat_pos, auc._stat_neg
        assert [sum(buckets) for buckets in counts] == [labels.sum(), 60 - labels.sum()]
    auc.reset()
    assert (auc.eval() if module is metrics_of_1x else auc.accumulate()) == 0.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        auc.update(np.array([[0.0, 7.0]]), np.array([[1]]))


def test_weighted_accuracy():
    accuracy = metrics_of_1x.Accuracy()
    with pytest.raises(ValueError, match="no data"):
        accuracy.eval()
    accuracy.update(value=0.8, weight=10)
    accuracy.update(value=np.array([0.5], "float32"), weight=20)
    assert float(accuracy.eval().item()) == pytest.approx(0.6)
    assert accuracy.get_config()["states"]["weight"] == 30
    with pytest.raises(ValueError, match="negative"):
        accuracy.update(0.5, -1)
    with pytest.raises(ValueError, match="value"):
        accuracy.update("0.5", 1)
    accuracy.reset()
    assert accuracy.weight == 0


def test_chunks_and_edit_distance():
    chunks = metrics_of_1x.ChunkEvaluator("chunks")
    chunks.update(10, 8, np.array([6]))
    chunks.update(np.array([2]), 4, 3)
    precision, recall, f1 = chunks.eval()
    assert (precision, recall) == (9 / 12, 9 / 12)
    assert f1 == pytest.approx(0.75)
    assert str(chunks) == "chunks"
    distance = metrics_of_1x.EditDistance("distance")
    with pytest.raises(ValueError, match="no data"):
        distance.eval()
    distance.update(np.array([[0.0], [2.0]]), np.array([2]))
    distance.update(np.array([[1.0]]), 1)
    assert distance.eval() == (1.0, 2 / 3)


def test_composite_metric():
    both = metrics_of_1x.CompositeMetric()
    both.add_metric(metrics_of_1x.Precision())
    both.add_metric(metrics_of_1x.Recall())
    both.update(np.array([[0.9], [0.2]]), np.array([[1], [1]]))
    assert both.eval() == [1.0, 0.5]
    with pytest.raises(ValueError, match="MetricBase"):
        both.add_metric(3)
    with pytest.raises(ValueError, match="ndarray"):
        metrics_of_1x.Precision().update([0.5], np.array([1]))
    with pytest.raises(NotImplementedError, match="MetricBase"):
        metrics_of_1x.MetricBase(None).eval()


@pytest.mark.parametrize("label_shape", [(6,), (6, 1), (6, 4)])
def test_accuracy_computes_in_the_program(label_shape):
    scores = RNG.random((6, 4)).astype("float32")
    labels = RNG.integers(0, 4, 6)
    fed = (
        np.eye(4, dtype="float32")[labels] if label_shape == (6, 4) else labels.reshape(label_shape)
    )
    acc = metrics_of_2x.Accuracy(topk=(1, 2))
    built = Built(lambda x, y: acc.compute(x, y), {"x": scores, "y": fed})
    found = acc.update(built.run()[0])
    order = np.argsort(-scores, 1)
    expected = [np.mean([labels[i] in order[i, :k] for i in range(6)]) for k in (1, 2)]
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(acc.accumulate(), expected)
    assert acc.name() == ["acc_top1", "acc_top2"]
    assert metrics_of_2x.Accuracy().name() == ["acc"]


def test_accuracy_function():
    scores = np.array([[0.1, 0.9], [0.8, 0.2]], "float32")
    labels = np.array([[1], [1]], "int32")
    built = Built(lambda x, y: metrics_of_2x.accuracy(x, y), {"x": scores, "y": labels})
    assert built.run()[0].item() == 0.5


def test_auc_layer_keeps_its_statistics():
    scores, labels = (RNG.integers(0, 200, 40) + 0.5) / 200, RNG.integers(0, 2, 40)
    feeds = {
        "x": np.stack([1 - scores, scores], 1)[:20].astype("float32"),
        "y": labels[:20, None],
    }
    built = Built(lambda x, y: static.layers.auc(x, y, num_thresholds=200)[:2], feeds)
    built.run()
    built.feeds["x"] = np.stack([1 - scores, scores], 1)[20:].astype("float32")
    built.feeds["y"] = labels[20:, None]
    whole, last = built.run()
    assert whole.item() == pytest.approx(roc_auc_score(labels, scores))
    assert last.item() == pytest.approx(roc_auc_score(labels[20:], scores[20:]))
