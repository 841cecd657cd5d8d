"""Recurrent layers over variable-length sequences, and single recurrent steps."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable

__all__ = ["dynamic_gru", "dynamic_lstm", "dynamic_lstmp", "gru_unit", "lstm_unit"]

_FLOATS = ["float32", "float64"]
_GRU_ACTIVATIONS = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


def _check_state(
    state: Variable | None, name: str, input: Variable, width: int, layer: str
) -> None:
    check_type(state, name, (Variable, type(None)), layer)
    if state is None:
        return
    check_variable_and_dtype(state, name, _FLOATS, layer)
    if len(state.shape) != 2 or state.shape[1] != width:
        raise ValueError(
            f"{name} of {layer} must have shape (batch size, {width}), not {state.shape}."
        )


def _temporaries(helper: LayerHelper, dtype: Any, *slots: str) -> dict[str, list[Variable]]:
    return {slot: [helper.create_variable_for_type_inference(dtype)] for slot in slots}


def _need_bias(bias_attr: Any, layer: str) -> None:
    if bias_attr is False:
        raise ValueError(f"bias_attr of {layer} must not be False: the layer needs its bias.")


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """LSTM over sequences; returns the hidden states and the cells of all steps.

    Args:
        input: sequences of projected inputs, shape [N, 4 * hidden size] (a `fc` before makes them).
        size: four times the hidden size.
        h_0: the first hidden states, zeros by default.
        c_0: the first cells, zeros by default.
        param_attr: the attributes of the weights [hidden, 4 * hidden].
        bias_attr: the attributes of the bias, which holds the peephole weights too.
        use_peepholes: whether gates see the cell.
        is_reverse: whether to go through each sequence from its end.
        gate_activation: the activation of the gates.
        cell_activation: the activation of the cell on its way out.
        candidate_activation: the activation of what enters the cell.
        dtype: the element type.
        name: the layer's name.
    """
    _need_bias(bias_attr, "dynamic_lstm")
    check_variable_and_dtype(input, "input", _FLOATS, "dynamic_lstm")
    helper = LayerHelper("lstm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    width = size // 4
    _check_state(h_0, "h_0", input, width, "dynamic_lstm")
    _check_state(c_0, "c_0", input, width, "dynamic_lstm")
    weight = helper.create_parameter(helper.param_attr, [width, 4 * width], dtype)
    bias = helper.create_parameter(
        helper.bias_attr, [1, (7 if use_peepholes else 4) * width], dtype, is_bias=True
    )
    outputs = _temporaries(helper, dtype, "Hidden", "Cell", "BatchGate", "BatchCellPreAct")
    helper.append_op(
        type="lstm",
        inputs={"Input": input, "Weight": weight, "Bias": bias, "H0": h_0, "C0": c_0},
        outputs=outputs,
        attrs={
            "use_peepholes": use_peepholes,
            "is_reverse": is_reverse,
            "gate_activation": gate_activation,
            "cell_activation": cell_activation,
            "candidate_activation": candidate_activation,
        },
    )
    return outputs["Hidden"][0], outputs["Cell"][0]


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """LSTM whose hidden state is projected to `proj_size`; returns the projections and the cells.

    `proj_activation` is applied to the projection; cells and projections are limited to
    [-cell_clip, cell_clip] and [-proj_clip, proj_clip]. The rest is as in `dynamic_lstm`.
    """
    _need_bias(bias_attr, "dynamic_lstmp")
    check_variable_and_dtype(input, "input", _FLOATS, "dynamic_lstmp")
    for clip, what in ((cell_clip, "cell_clip"), (proj_clip, "proj_clip")):
        if clip is not None and clip < 0:
            raise ValueError(f"{what} of dynamic_lstmp must not be negative, but is {clip}.")
    helper = LayerHelper("lstmp", param_attr=param_attr, bias_attr=bias_attr, name=name)
    width = size // 4
    _check_state(h_0, "h_0", input, proj_size, "dynamic_lstmp")
    _check_state(c_0, "c_0", input, width, "dynamic_lstmp")
    weight = helper.create_parameter(helper.param_attr, [proj_size, 4 * width], dtype)
    projection = helper.create_parameter(helper.param_attr, [width, proj_size], dtype)
    bias = helper.create_parameter(
        helper.bias_attr, [1, (7 if use_peepholes else 4) * width], dtype, is_bias=True
    )
    outputs = _temporaries(helper, dtype, "Projection", "Cell")
    helper.create_variable_for_type_inference(dtype)  # Paddle makes one that no op uses; the
    # numbers of the following names count it.
    outputs |= _temporaries(helper, dtype, "BatchHidden", "BatchGate", "BatchCellPreAct")
    helper.append_op(
        type="lstmp",
        inputs={
            "Input": input,
            "Weight": weight,
            "ProjWeight": projection,
            "Bias": bias,
            "H0": h_0,
            "C0": c_0,
        },
        outputs=outputs,
        attrs={
            "use_peepholes": use_peepholes,
            "cell_clip": cell_clip,
            "proj_clip": proj_clip,
            "is_reverse": is_reverse,
            "gate_activation": gate_activation,
            "cell_activation": cell_activation,
            "candidate_activation": candidate_activation,
            "proj_activation": proj_activation,
        },
    )
    return outputs["Projection"][0], outputs["Cell"][0]


def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """GRU over sequences; returns the hidden states of all steps.

    Args:
        input: sequences of projected inputs, shape [N, 3 * size] (a `fc` before makes them).
        size: the hidden size.
        param_attr: the attributes of the weights [size, 3 * size].
        bias_attr: the attributes of the bias.
        is_reverse: whether to go through each sequence from its end.
        gate_activation: the activation of the update and reset gates.
        candidate_activation: the activation of the candidate state.
        h_0: the first hidden states, zeros by default.
        origin_mode: whether the update gate keeps the old state (as in the first paper) instead of
            taking the new one.
    """
    check_variable_and_dtype(input, "input", _FLOATS, "dynamic_gru")
    helper = LayerHelper("gru", input=input, param_attr=param_attr, bias_attr=bias_attr)
    _check_state(h_0, "h_0", input, size, "dynamic_gru")
    dtype = helper.input_dtype()
    weight = helper.create_parameter(helper.param_attr, [size, 3 * size], dtype)
    bias = helper.create_parameter(helper.bias_attr, [1, 3 * size], dtype, is_bias=True)
    outputs = _temporaries(
        helper, dtype, "Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden"
    )
    helper.append_op(
        type="gru",
        inputs={"Input": input, "Weight": weight, "Bias": bias, "H0": h_0},
        outputs=outputs,
        attrs={
            "is_reverse": is_reverse,
            "gate_activation": gate_activation,
            "activation": candidate_activation,
            "origin_mode": origin_mode,
        },
    )
    return outputs["Hidden"][0]


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """One GRU step; returns the new hidden state, the reset old one, and the gates.

    Args:
        input: projected inputs, shape [batch, size].
        hidden: the hidden state so far, shape [batch, size / 3].
        size: three times the hidden size.
        param_attr: the attributes of the weights.
        bias_attr: the attributes of the bias; False for none.
        activation: the activation of the candidate state.
        gate_activation: the activation of the gates.
        origin_mode: as in `dynamic_gru`.
    """
    check_variable_and_dtype(input, "input", _FLOATS, "gru_unit")
    check_variable_and_dtype(hidden, "hidden", _FLOATS, "gru_unit")
    check_type(size, "size", int, "gru_unit")
    for what, value in (("activation", activation), ("gate_activation", gate_activation)):
        if value not in _GRU_ACTIVATIONS:
            raise ValueError(
                f"{what} of gru_unit must be one of {', '.join(_GRU_ACTIVATIONS)}, not {value!r}."
            )
    helper = LayerHelper("gru_unit", input=input, param_attr=param_attr, bias_attr=bias_attr)
    dtype = helper.input_dtype()
    width = size // 3
    weight = helper.create_parameter(helper.param_attr, [width, 3 * width], dtype)
    outputs = _temporaries(helper, dtype, "Gate", "ResetHiddenPrev", "Hidden")
    inputs = {"Input": input, "HiddenPrev": hidden, "Weight": weight}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(
            helper.bias_attr, [1, 3 * width], dtype, is_bias=True
        )
    helper.append_op(
        type="gru_unit",
        inputs=inputs,
        outputs=outputs,
        attrs={
            "activation": _GRU_ACTIVATIONS[activation],
            "gate_activation": _GRU_ACTIVATIONS[gate_activation],
            "origin_mode": origin_mode,
        },
    )
    return outputs["Hidden"][0], outputs["ResetHiddenPrev"][0], outputs["Gate"][0]


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One LSTM step with its own projection; returns the new hidden state and cell.

    Args:
        x_t: inputs of shape [batch, D].
        hidden_t_prev: the hidden state so far, [batch, size].
        cell_t_prev: the cell so far, [batch, size].
        forget_bias: added to the forget gate.
        param_attr: the attributes of the projection's weights.
        bias_attr: the attributes of the projection's bias.
        name: the layer's name.
    """
    from fleetx.static.layers import concat, fc

    helper = LayerHelper("lstm_unit", name=name)
    states = {"x_t": x_t, "hidden_t_prev": hidden_t_prev, "cell_t_prev": cell_t_prev}
    for what, var in states.items():
        check_variable_and_dtype(var, what, _FLOATS, "lstm_unit")
        if len(var.shape) != 2:
            raise ValueError(f"{what} of lstm_unit must have 2 dimensions, not shape {var.shape}.")
        if var.shape[0] != x_t.shape[0]:
            raise ValueError(
                f"{what} of lstm_unit has {var.shape[0]} rows, but x_t has {x_t.shape[0]}."
            )
    if hidden_t_prev.shape[1] != cell_t_prev.shape[1]:
        raise ValueError(
            f"hidden_t_prev {hidden_t_prev.shape} and cell_t_prev {cell_t_prev.shape} of lstm_unit "
            "must have the same width."
        )
    joined = concat(input=[x_t, hidden_t_prev], axis=1)
    projected = fc(
        input=joined,
        size=4 * cell_t_prev.shape[1],
        param_attr=param_attr,
        bias_attr=ParamAttr() if bias_attr is None else bias_attr,
    )
    outputs = _temporaries(helper, x_t.dtype, "C", "H")
    helper.append_op(
        type="lstm_unit",
        inputs={"X": projected, "C_prev": cell_t_prev},
        outputs=outputs,
        attrs={"forget_bias": float(forget_bias)},
    )
    return outputs["H"][0], outputs["C"][0]
