"""Weight decay: the ops it appends and whose regularizer counts."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fleetx import static
from fleetx.static import append_backward, layers, optimizer
from fleetx.static.graph.operator import OpRole
from fleetx.static.regularizer import (
    L1Decay,
    L1DecayRegularizer,
    L2Decay,
    L2DecayRegularizer,
    append_regularization_ops,
)


def network(**attr: Any) -> Any:
    """Return the mean of a linear layer's output."""
    x = layers.data("x", shape=[4], dtype="float32")
    return layers.mean(layers.fc(x, 3, param_attr=static.ParamAttr(**attr), bias_attr=False))


@pytest.mark.parametrize(
    ("regularizer", "types"),
    [(L2Decay(0.5), ["scale", "sum"]), (L1Decay(0.5), ["sign", "scale", "sum"])],
)
def test_appended_ops(regularizer: Any, types: list[str]) -> None:
    pairs = append_backward(network(regularizer=regularizer))
    block = static.default_main_program().global_block()
    count = len(block.ops)
    assert append_regularization_ops(pairs) == pairs
    added = block.ops[count:]
    assert [op.type for op in added] == types
    assert added[-2].attr("scale") == 0.5
    assert added[-1].output("Out") == ["fc_0.w_0@GRAD"]
    for op in added:
        assert op.op_role == OpRole.Optimize
        assert op.attr("op_role_var") == ["fc_0.w_0", "fc_0.w_0@GRAD"]
        assert op.attr("op_namescope").startswith("/regularization")


def test_nothing_is_appended_without_a_regularizer() -> None:
    pairs = append_backward(network())
    count = len(static.default_main_program().global_block().ops)
    append_regularization_ops([*pairs, (pairs[0][0], None)])
    assert len(static.default_main_program().global_block().ops) == count


def test_the_parameters_own_goes_before_the_optimizers(caplog: pytest.LogCaptureFixture) -> None:
    loss = network(regularizer=L1Decay(0.5))
    with caplog.at_level(logging.INFO):
        optimizer.SGD(0.1, regularization=L2Decay(0.1)).minimize(loss)
    assert "L2Decay, regularization_coeff=0.100000 applies to the others only" in caplog.text
    types = [op.type for op in loss.block.ops]
    assert types[-4:] == ["sign", "scale", "sum", "sgd"]


def test_names_and_texts() -> None:
    assert (L1DecayRegularizer, L2DecayRegularizer) == (L1Decay, L2Decay)
    assert str(L2Decay(regularization_coeff=0.1)) == "L2Decay, regularization_coeff=0.100000"
    assert str(L1Decay(coeff=0.1)) == "L1Decay, regularization_coeff=0.100000"
    assert L2Decay()._regularization_coeff == 0.0


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="coefficient of L2DecayRegularizer must be a number"):
        L2Decay(None)  # type: ignore[arg-type]
    block = static.default_main_program().global_block()
    plain: Any = block.create_var(name="v", shape=[1], dtype="float32")
    with pytest.raises(TypeError, match="applies to Parameters, not Variable"):
        L2Decay(0.1)(plain, plain, block)
