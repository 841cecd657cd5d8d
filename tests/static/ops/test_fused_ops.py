"""Ops that stand for several others give what those give, one after another."""

import numpy as np
import pytest
from op_check import OpProgram, check_op

LENGTHS = [3, 1, 4]


def values(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def result(type, inputs, attrs, *slots):
    """Return outputs of one op in a program of its own."""
    program = OpProgram(type, inputs, attrs, dict.fromkeys(slots, 1))
    return program.run([program.outputs[slot][0] for slot in slots])


@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_ops_contain_their_projections(peepholes, reverse):
    x, wx, wh = values(8, 5), values(5, 12), values(3, 12)
    bias = values(1, 21 if peepholes else 12)
    attrs = {"use_peepholes": peepholes, "is_reverse": reverse}
    start = {"H0": values(3, 3), "C0": values(3, 3) + 1}
    plain = {"Input": (x @ wx, [LENGTHS]), "Weight": wh, "Bias": bias, **start}
    hidden, cell = result("lstm", plain, attrs, "Hidden", "Cell")
    fused = {"X": (x, [LENGTHS]), "WeightX": wx, "WeightH": wh, "Bias": bias, **start}
    check_op("fusion_lstm", fused, attrs, {"Hidden": hidden, "Cell": cell}, grad_of=[])
    # Rows of a table that already contain projection and bias.
    ids = np.array([[2], [0], [1], [1], [4], [3], [0], [2]])
    table = x[:5] @ wx + bias[:, :12]
    plain["Input"] = (x[:5][ids[:, 0]] @ wx, [LENGTHS])
    hidden, cell = result("lstm", plain, attrs, "Hidden", "Cell")
    fused = {"Ids": (ids, [LENGTHS]), "Embeddings": table, "WeightH": wh, "Bias": bias, **start}
    outputs = {"Hidden": hidden, "Cell": cell}
    check_op("fused_embedding_fc_lstm", fused, attrs, outputs, grad_of=[])


@pytest.mark.parametrize("origin", [False, True])
def test_a_gru_contains_its_projection(origin):
    x, wx, wh, bias = values(8, 5), values(5, 9), values(3, 9), values(1, 9)
    attrs = {"origin_mode": origin, "is_reverse": origin}
    plain = {"Input": (x @ wx, [LENGTHS]), "Weight": wh, "Bias": bias, "H0": values(3, 3)}
    (hidden,) = result("gru", plain, attrs, "Hidden")
    fused = {"X": (x, [LENGTHS]), "WeightX": wx, "WeightH": wh, "Bias": bias, "H0": values(3, 3)}
    check_op("fusion_gru", fused, attrs, {"Hidden": hidden}, grad_of=[])


def test_convolution_and_rows_of_sequences_with_their_layers():
    x, weight, bias = values(8, 2), values(6, 4), values(1, 4)
    attrs = {"contextLength": 3, "contextStart": -1}
    (plain,) = result("sequence_conv", {"X": (x, [LENGTHS]), "Filter": weight}, attrs, "Out")
    inputs = {"X": (x, [LENGTHS]), "Filter": weight, "Bias": bias}
    outputs = {"Out": np.maximum(plain + bias, 0)}
    check_op("fusion_seqconv_eltadd_relu", inputs, attrs, outputs, grad_of=[])
    per_sequence = values(3, 4)
    wide = np.concatenate([x, np.repeat(per_sequence, LENGTHS, 0)], 1)
    inputs = {"X": [(x, [LENGTHS]), per_sequence], "FCWeight": weight, "FCBias": bias}
    outputs = {"Out": np.tanh(wide @ weight + bias)}
    check_op("fusion_seqexpand_concat_fc", inputs, {"fc_activation": "tanh"}, outputs, grad_of=[])


@pytest.mark.parametrize("kind", ["SUM", "AVERAGE", "SQRT"])
def test_pooled_sequences_stand_side_by_side(kind):
    xs = [(abs(values(8, 4)), [LENGTHS]), (abs(values(6, 4)), [[1, 3, 2]])]
    rows = [result("sequence_pool", {"X": x}, {"pooltype": kind}, "Out")[0] for x in xs]
    outputs = {"Out": np.concatenate(rows, 1)}
    check_op("fusion_seqpool_concat", {"X": xs}, {"pooltype": kind}, outputs, grad_of=[])
    counts = np.ones((1, 2))
    for use_cvm in (True, False):
        outs = [result("cvm", {"X": r, "CVM": np.ones((3, 2))}, {"use_cvm": use_cvm}, "Y")[0]
                for r in rows]  # fmt: skip
        attrs = {"pooltype": kind, "use_cvm": use_cvm}
        outputs = {"Out": np.concatenate(outs, 1)}
        check_op("fusion_seqpool_cvm_concat", {"X": xs, "CVM": counts}, attrs, outputs, grad_of=[])


def test_only_rows_are_joined():
    inputs = {"X": [(values(8, 4), [LENGTHS])]}
    with pytest.raises(Exception, match="use sequence_pool and concat"):
        result("fusion_seqpool_concat", inputs, {"pooltype": "MAX"}, "Out")


def test_matrix_products_one_after_another():
    x, w1, w2, b1, b2 = values(3, 4), values(4, 5), values(5, 2), values(1, 5), values(1, 2)
    between = np.maximum(x @ w1 + b1, 0)
    outputs = {"ReluOut": [between], "Out": np.maximum(between @ w2 + b2, 0)}
    inputs = {"X": x, "W": [w1, w2], "Bias": [b1, b2]}
    check_op("fusion_repeated_fc_relu", inputs, {}, outputs, counts={"ReluOut": 1}, grad_of=[])
    product = {"Out": ((x @ w1) ** 2 - x**2 @ w1**2) * 0.5}
    check_op("fusion_squared_mat_sub", {"X": x, "Y": w1}, {"scalar": 0.5}, product, grad_of=[])


def test_several_ids_per_position_are_columns():
    table, ids = values(7, 3), np.array([[4, 3], [4, 1], [2, 1], [6, 1]])
    rows = table[ids].reshape(4, 6)
    outputs = {"Out": np.stack([rows[:3].sum(0), rows[3]])}
    check_op("fused_embedding_seq_pool", {"W": table, "Ids": (ids, [[3, 1]])}, {}, outputs)
