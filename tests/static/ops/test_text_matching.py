"""Matrices of scores of texts, convolution over trees, LSTM with attention."""

import numpy as np
import pytest
from op_check import check_op

from fleetx import static
from fleetx.static.errors import ShapeError
from fleetx.static.layers import contrib_text
from fleetx.static.readers.lod_tensor import create_lod_tensor

ROWS, COLUMNS = [2, 3], [4, 1]


@pytest.fixture(autouse=True)
def _program():
    programs = static.program_guard(static.Program(), static.Program())
    with programs, static.unique_name.guard(), static.scope_guard(static.Scope()):
        yield


def values(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def test_scores_of_all_pairs_of_words():
    x, y, w = values(5, 3), values(5, 3), values(3, 2, 3)
    expected = []
    for left, right in ((x[:2], y[:4]), (x[2:], y[4:])):
        expected += [left @ w[:, t] @ right.T for t in range(2)]
    flat = np.concatenate([e.reshape(-1) for e in expected])[:, None]
    inputs = {"X": (x, [ROWS]), "Y": (y, [COLUMNS]), "W": w}
    between = np.einsum("nh,htk->ntk", x, w).reshape(-1, 1)
    outputs = {"Out": flat, "Tmp": between}
    check_op("match_matrix_tensor", inputs, {"dim_t": 2}, outputs, grad_from=["Out"])


def matrices():
    """Return a matrix of 2 x 4 and one of 3 x 1, two channels each."""
    x = values(2 * 8 + 2 * 3, 1)
    inputs = {
        "X": (x, [[16, 6]]),
        "ROW": (values(5, 2), [ROWS]),
        "COLUMN": (values(5, 2), [COLUMNS]),
    }
    return inputs, [x[:16].reshape(2, 2, 4), x[16:].reshape(2, 3, 1)]


@pytest.mark.parametrize(("kernel", "stride"), [((3, 3), (1, 1)), ((2, 5), (2, 3))])
def test_convolution_of_matrices_of_different_sizes(kernel, stride):
    inputs, images = matrices()
    w = values(3, 2 * kernel[0] * kernel[1])
    filters = w.reshape(3, 2, *kernel)
    expected = []
    for image in images:
        around = np.pad(image, [(0, 0), (9, 9), (9, 9)])
        rows, columns = (range(0, n, s) for n, s in zip(image.shape[1:], stride, strict=True))
        for f in filters:
            for i in rows:
                for j in columns:
                    top, left = 9 + i - kernel[0] // 2, 9 + j - kernel[1] // 2
                    seen = around[:, top : top + kernel[0], left : left + kernel[1]]
                    expected.append((f * seen).sum())
    attrs = {"InputChannel": 2, "OutputChannel": 3, "KernelH": kernel[0], "KernelW": kernel[1]}
    attrs |= {"StrideH": stride[0], "StrideW": stride[1]}
    out = np.array(expected)[:, None]
    check_op(
        "var_conv_2d",
        {**inputs, "W": w},
        attrs,
        {"Out": out},
        grad_of=["X", "W"],
        grad_from=["Out"],
    )


def test_averages_of_the_largest_numbers():
    inputs, images = matrices()
    rows = []
    for image in images:
        for row in image.transpose(1, 0, 2):
            best = -np.sort(-row, -1)
            best = np.pad(best, [(0, 0), (0, 7)])
            rows.append(np.stack([best[:, :k].sum(-1) / k for k in (1, 3, 6)], -1).reshape(-1))
    attrs = {"topks": [1, 3, 6], "channel_num": 2}
    found = check_op(
        "sequence_topk_avg_pooling", inputs, attrs, {"Out": np.array(rows)}, grad_of=["X"]
    )
    places = found["pos"][0].reshape(5, 2, 6)
    assert (places[:2, :, 4:] == -1).all()
    assert (places[2:, :, 0] == 0).all()
    assert (places[2:, :, 1:] == -1).all()
    assert places[0, 0, 0] == images[0][0, 0].argmax()


def test_what_does_not_fit_is_refused():
    inputs, _ = matrices()
    wrong = {**inputs, "COLUMN": inputs["ROW"]}
    with pytest.raises(RuntimeError, match="2 channels of"):
        check_op("sequence_topk_avg_pooling", wrong, {"topks": [1], "channel_num": 2})
    with pytest.raises(ShapeError, match="ascending"):
        check_op("sequence_topk_avg_pooling", inputs, {"topks": [3, 1], "channel_num": 2})
    with pytest.raises(ShapeError, match="W must have shape"):
        check_op("var_conv_2d", {**inputs, "W": values(3, 5)}, {"InputChannel": 2})
    x, y = static.data("x", [-1, 3], lod_level=1), static.data("y", [-1, 4], lod_level=1)
    with pytest.raises(ShapeError, match="one width"):
        contrib_text.match_matrix_tensor(x, y, 2)


def test_layers_of_text_matching():
    x, y = static.data("x", [-1, 3], lod_level=1), static.data("y", [-1, 3], lod_level=1)
    scores, _ = contrib_text.match_matrix_tensor(x, y, 2, act="relu")
    pooled = contrib_text.sequence_topk_avg_pooling(scores, x, y, [1, 2], 2)
    seen = contrib_text.var_conv_2d(scores, x, y, 2, 4, [2, 3], act="relu")
    static.optimizer.SGD(0.1).minimize(static.layers.mean(pooled) + static.layers.mean(seen))
    executor = static.Executor()
    executor.run(static.default_startup_program())
    feed = {
        name: create_lod_tensor(values(5, 3).astype("float32"), [lengths], static.CPUPlace())
        for name, lengths in (("x", ROWS), ("y", COLUMNS))
    }
    found = executor.run(feed=feed, fetch_list=[scores, pooled, seen], return_numpy=False)
    assert [v.recursive_sequence_lengths() for v in found] == [[[16, 6]], [ROWS], [[32, 12]]]
    assert [np.array(v).shape for v in found] == [(22, 1), (5, 4), (44, 1)]


def walk(tree, root, depth):
    """Yield (node, place, siblings, depth) of a root and its descendants."""
    queue = [(root, 1, 1, 0)]
    while queue:
        node, place, count, level = queue.pop()
        yield node, place, count, level
        children = tree.get(node, []) if level + 1 < depth else []
        queue += [(c, i + 1, len(children), level + 1) for i, c in enumerate(children)]


@pytest.mark.parametrize("depth", [2, 3])
def test_convolution_over_trees(depth):
    tree = {1: [2, 3, 4], 3: [5, 6], 6: [7]}
    edges = [[u, v] for u, children in tree.items() for v in children]
    x, w = values(1, 8, 3), values(3, 3, 4, 2)
    expected = np.zeros((1, 8, 4, 2))
    for root in range(1, 8):
        for node, place, count, level in walk(tree, root, depth):
            top = (depth - level) / depth
            left = (1 - top) * ((place - 1) / (count - 1) if count > 1 else 0.5)
            share = [left, (1 - top) * (1 - left), top]
            expected[0, root - 1] += np.einsum("f,k,fkoc->oc", x[0, node - 1], share, w)
    inputs = {"NodesVector": x, "EdgeSet": np.array([[*edges, [0, 0]]], "int32"), "Filter": w}
    check_op("tree_conv", inputs, {"max_depth": depth}, {"Out": expected})


def test_edges_that_are_no_tree_are_refused():
    inputs = {"NodesVector": values(1, 3, 2), "Filter": values(2, 3, 1, 1)}
    for edges, reason in (
        ([[1, 2], [1, 2]], "two parents"),
        ([[1, 2], [2, 3], [3, 4]], "vectors for 3"),
        ([[1, 9], [2, 3]], "must connect nodes 1 to 3"),
    ):
        with pytest.raises(RuntimeError, match=reason):
            check_op("tree_conv", {**inputs, "EdgeSet": np.array([edges], "int32")})
    x, edges = static.data("x", [-1, 3, 2]), static.data("e", [-1, 2, 2], "int32")
    assert contrib_text.tree_conv(x, edges, 6, 5).shape == (-1, 3, 6, 5)
    with pytest.raises(ShapeError, match="at least 2"):
        contrib_text.tree_conv(x, edges, 6, max_depth=1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("more", [False, True])
def test_lstm_with_attention(more):
    x, c0, attention = abs(values(6, 3)), values(2, 4), abs(values(7, 1))
    weight, bias = values(7, 16), values(1, 16)
    inputs = {"X": (x, [[4, 2]]), "C0": c0, "AttentionWeight": attention}
    inputs |= {"LSTMWeight": weight, "LSTMBias": bias}
    extra = dict.fromkeys(("AttentionBias", "AttentionScalarBias"), np.array([[0.2]]))
    extra |= {"H0": values(4, 2).T.copy(), "AttentionScalar": np.array([[0.7]])}
    given = extra if more else {}
    hiddens, cells = [], []
    for i, rows in enumerate((x[:4], x[4:])):
        cell, hidden = c0[i], given["H0"][i] if more else np.zeros(4)
        for _ in rows:
            scores = rows @ attention[:3, 0] + (0.2 if more else 0) + cell @ attention[3:, 0]
            scores = np.maximum(scores, 0)
            if more:
                scores = np.maximum(scores * 0.7 + 0.2, 0)
            share = np.exp(scores) / np.exp(scores).sum()
            gates = hidden @ weight[:4] + share @ rows @ weight[4:] + bias[0]
            forget, enter, leave = np.split(sigmoid(gates[:12]), 3)
            cell = forget * cell + enter * np.tanh(gates[12:])
            hidden = np.tanh(cell) * leave
            hiddens.append(hidden)
            cells.append(cell)
    outputs = {"Hidden": np.array(hiddens), "Cell": np.array(cells)}
    found = check_op("attention_lstm", {**inputs, **given}, {}, outputs)
    np.testing.assert_allclose(found["AttentionFCOut"][0][:2, 0], share)
    np.testing.assert_allclose(found["LSTMX"][0][0], share @ x[4:])


def test_lstm_with_attention_checks_shapes():
    inputs = {"X": (values(6, 3), [[4, 2]]), "C0": values(3, 4), "AttentionWeight": values(7, 1)}
    inputs |= {"LSTMWeight": values(7, 16), "LSTMBias": values(1, 16)}
    with pytest.raises(RuntimeError, match="2 sequences, but 3 cells"):
        check_op("attention_lstm", inputs)
    with pytest.raises(ShapeError, match="AttentionWeight must have shape"):
        check_op("attention_lstm", {**inputs, "AttentionWeight": values(6, 1)})
