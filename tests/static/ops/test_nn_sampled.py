"""Losses over many classes, CTC, chunks and other rarer ops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_check import OpProgram, check_op

from fleetx import static
from fleetx.static.ops.chunks import find_chunks

RNG = np.random.default_rng(4)


def rand(*shape):
    return RNG.standard_normal(shape)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_nce_with_given_noise():
    x, label, w, b = rand(3, 4), np.array([[0], [2], [1]]), rand(5, 4), rand(5, 1)
    noise = [3, 4, 1]
    classes = np.concatenate([label, np.tile(noise, (3, 1))], 1)
    score = sigmoid(np.einsum("nd,nkd->nk", x, w[classes]) + b[classes, 0])
    level = 3 / 5
    cost = -np.log(score[:, :1] / (score[:, :1] + level))
    cost = cost - np.log(level / (score[:, 1:] + level)).sum(1, keepdims=True)
    inputs = {"Input": x, "Label": label, "Weight": w, "Bias": b}
    attrs = {"num_total_classes": 5, "num_neg_samples": 3, "custom_neg_classes": noise}
    check_op("nce", inputs, attrs, {"Cost": cost, "SampleLabels": classes})
    program = OpProgram("nce", inputs, attrs, {})
    loss = program.add_loss(["Cost"], {"Cost": [cost]})
    variables = [program.inputs[s][0] for s in ("Input", "Weight", "Bias")]
    grads = program.run(static.gradients([loss], variables))
    for var, grad in zip(variables, grads, strict=True):
        np.testing.assert_allclose(grad, program.numeric(loss, var.name, 1e-5), rtol=1e-5)


@pytest.mark.parametrize("sampler", [0, 1, 2])
def test_nce_draws_noise_from_its_distribution(sampler):
    classes, rows = 6, 400
    dist = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1], "float32")
    inputs = {
        "Input": rand(rows, 2),
        "Label": np.zeros((rows, 1), "int64"),
        "Weight": rand(classes, 2),
    }
    if sampler == 2:
        inputs |= {"CustomDistProbs": dist}
    ids = np.arange(classes)
    expected = {
        0: np.full(classes, 1 / classes),
        1: np.log((ids + 2) / (ids + 1)) / np.log(classes + 1),
        2: dist,
    }[sampler]
    attrs = {"num_total_classes": classes, "num_neg_samples": 20, "sampler": sampler, "seed": 5}
    found = check_op("nce", inputs, attrs, counts={"SampleLabels": 1})["SampleLabels"][0][:, 1:]
    share = np.bincount(found.ravel(), minlength=classes) / found.size
    np.testing.assert_allclose(share, expected, atol=0.08)


def test_hierarchical_sigmoid():
    """Six classes: leaf 6 + label, node (leaf >> bit + 1) - 1, decision the bit cut off."""
    x, w, b = rand(3, 4), rand(5, 4), rand(5, 1)
    label = np.array([[0], [3], [5]])
    wanted = np.zeros((3, 1))
    for row, (value,) in enumerate(label):
        leaf = 6 + value
        for bit in range(3):
            node = (leaf >> (bit + 1)) - 1
            score = 0.0 if node < 0 else x[row] @ w[node] + b[node, 0]
            decision = 0 if node < 0 else (leaf >> bit) & 1
            wanted[row] += np.log1p(np.exp(score)) - decision * score
    inputs = {"X": x, "W": w, "Label": label, "Bias": b}
    check_op("hierarchical_sigmoid", inputs, {"num_classes": 6}, {"Out": wanted})


def test_hierarchical_sigmoid_with_a_tree_of_ones_own():
    x, w = rand(2, 3), rand(4, 3)
    table, code = np.array([[0, 2, -1], [0, 1, 3]]), np.array([[1, 0, -1], [0, 1, 1]])
    wanted = np.zeros((2, 1))
    for row in range(2):
        for node, decision in zip(table[row], code[row], strict=True):
            score = 0.0 if node < 0 else x[row] @ w[node]
            wanted[row] += np.log1p(np.exp(score)) - max(decision, 0) * score
    inputs = {"X": x, "W": w, "Label": np.zeros((2, 1), "int64")}
    inputs |= {"PathTable": table, "PathCode": code}
    check_op("hierarchical_sigmoid", inputs, {"num_classes": 4}, {"Out": wanted})


def test_sample_logits_with_given_samples():
    logits, labels = rand(2, 6), np.array([[1], [4]])
    samples, chance = np.array([[1, 0, 1], [4, 5, 2]]), RNG.uniform(0.2, 0.8, (2, 3))
    picked = np.take_along_axis(logits, samples, 1) - np.log(chance)
    picked[0, 2] -= 1e20  # a sampled class that is the true one
    inputs = {
        "Logits": logits,
        "Labels": labels,
        "CustomizedSamples": samples,
        "CustomizedProbabilities": chance,
    }
    attrs = {"use_customized_samples": True, "num_samples": 2}
    found = check_op("sample_logits", inputs, attrs, {"SampledLogits": picked})
    assert found["SampledLabels"][0].tolist() == [[0], [0]]


def test_sample_logits_draws_distinct_classes():
    inputs = {"Logits": rand(2, 9), "Labels": np.array([[1], [4]])}
    found = check_op("sample_logits", inputs, {"num_samples": 6, "seed": 3})
    samples = found["Samples"][0]
    assert samples[:, 0].tolist() == [1, 4]
    assert len(set(samples[0, 1:])) == 6


def test_warpctc_padded_and_as_sequences():
    logits, labels = rand(5, 2, 4), np.array([[1, 2, 0], [3, 3, 1]], "int32")
    steps, sizes = np.array([4, 5]), np.array([2, 3])
    expected = F.ctc_loss(
        F.log_softmax(t(logits), -1), t(labels).long(), t(steps), t(sizes), reduction="none"
    ).numpy()[:, None]
    inputs = {"Logits": logits, "Label": labels, "LogitsLength": steps, "LabelLength": sizes}
    check_op("warpctc", inputs, {}, {"Loss": expected})
    rows = np.concatenate([logits[:4, 0], logits[:5, 1]])
    tokens = np.concatenate([labels[0, :2], labels[1]])[:, None]
    inputs = {"Logits": (rows, [[4, 5]]), "Label": (tokens, [[2, 3]])}
    check_op("warpctc", inputs, {}, {"Loss": expected})


def test_warpctc_divides_only_gradients_by_times():
    logits = rand(4, 1, 3)
    inputs = {
        "Logits": logits,
        "Label": np.array([[1]], "int32"),
        "LogitsLength": np.array([4]),
        "LabelLength": np.array([1]),
    }
    grads, losses = [], []
    for norm in (False, True):
        program = OpProgram("warpctc", inputs, {"norm_by_times": norm}, {})
        loss = program.outputs["Loss"][0]
        grad = static.gradients([loss], [program.inputs["Logits"][0]])
        found = program.run([loss, *grad])
        losses.append(found[0])
        grads.append(found[1])
    np.testing.assert_allclose(losses[0], losses[1])
    np.testing.assert_allclose(grads[0], grads[1] * 4)


def test_ctc_align():
    tokens = np.array([[0, 1, 1, 0, 1, 2], [2, 2, 0, 3, 3, 3]])
    inputs = {"Input": tokens, "InputLength": np.array([[6], [4]])}
    found = check_op("ctc_align", inputs, {"padding_value": 9}, counts={"OutputLength": 1})
    assert found["Output"][0].tolist() == [[1, 1, 2, 9, 9, 9], [2, 3, 9, 9, 9, 9]]
    assert found["OutputLength"][0].tolist() == [[3], [2]]
    flat = (tokens.reshape(-1, 1), [[6, 6]])
    found = check_op("ctc_align", {"Input": flat}, {"merge_repeated": False})
    assert found["Output"][0].ravel().tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("scheme", "tags", "chunks"),
    [
        # two types; IOB: 0 B-0, 1 I-0, 2 B-1, 3 I-1, 4 outside
        ("IOB", [0, 1, 1, 0, 4, 3, 3, 2], {(0, 2, 0), (3, 3, 0), (5, 6, 1), (7, 7, 1)}),
        # IOE: 0 I-0, 1 E-0, 2 I-1, 3 E-1
        ("IOE", [0, 1, 0, 4, 2, 3, 3], {(0, 1, 0), (2, 2, 0), (4, 5, 1), (6, 6, 1)}),
        # IOBES: 0 B, 1 I, 2 E, 3 S
        ("IOBES", [0, 1, 2, 3, 8, 7], {(0, 2, 0), (3, 3, 0), (5, 5, 1)}),
        ("plain", [0, 0, 1, 2, 0], {(0, 1, 0), (2, 2, 1), (4, 4, 0)}),
    ],
)
def test_chunks(scheme, tags, chunks):
    assert find_chunks(tags, scheme, 2) == chunks
    without = {c for c in chunks if c[2] != 1}
    assert find_chunks(tags, scheme, 2, frozenset({1})) == without


def test_chunk_eval():
    label, found = (
        np.array([[0], [1], [4], [2], [3], [4]]),
        np.array([[0], [1], [4], [2], [4], [0]]),
    )
    inputs = {"Inference": (found, [[3, 3]]), "Label": (label, [[3, 3]])}
    out = check_op("chunk_eval", inputs, {"num_chunk_types": 2})
    counts = [out[s][0].item() for s in ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")]
    assert counts == [3, 2, 1]
    np.testing.assert_allclose(out["Precision"][0], [1 / 3], rtol=1e-6)
    np.testing.assert_allclose(out["Recall"][0], [1 / 2])
    np.testing.assert_allclose(out["F1-Score"][0], [0.4], rtol=1e-6)


@pytest.mark.parametrize("use_cvm", [True, False])
def test_cvm_hands_shows_and_clicks_back_as_gradients(use_cvm):
    x, cvm = RNG.uniform(0, 5, (3, 4)), RNG.uniform(0, 5, (3, 2))
    logs = np.log(x[:, :2] + 1)
    wanted = x[:, 2:]
    if use_cvm:
        wanted = np.concatenate([logs[:, :1], logs[:, 1:] - logs[:, :1], wanted], 1)
    inputs, attrs = {"X": x, "CVM": cvm}, {"use_cvm": use_cvm}
    check_op("cvm", inputs, attrs, {"Y": wanted}, grad_of=[])
    program = OpProgram("cvm", inputs, attrs, {})
    loss = program.add_loss(["Y"], {"Y": [wanted]})
    (grad,) = program.run(static.gradients([loss], [program.inputs["X"][0]]))
    np.testing.assert_allclose(grad[:, :2], cvm)
    weights = program.feeds["weight_out_Y_0"]
    np.testing.assert_allclose(grad[:, 2:], weights[:, -2:])


def test_row_conv():
    x, w = rand(5, 2), rand(3, 2)

    def ahead(rows):
        padded = np.concatenate([rows, np.zeros((2, 2))])
        return sum(padded[i : i + len(rows)] * w[i] for i in range(3))

    wanted = np.concatenate([ahead(x[:2]), ahead(x[2:])])
    check_op("row_conv", {"X": (x, [[2, 3]]), "Filter": w}, {}, {"Out": wanted})
    batch = x[:4].reshape(2, 2, 2)
    wanted = np.stack([ahead(batch[0]), ahead(batch[1])])
    check_op("row_conv", {"X": batch, "Filter": w}, {}, {"Out": wanted})
