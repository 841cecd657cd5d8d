"""Recurrent layers over variable-length sequences, and single recurrent steps."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype, one_of
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import checked
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.joining import concat
from fleetx.static.layers.nn import fc

__all__ = ["dynamic_gru", "dynamic_lstm", "dynamic_lstmp", "gru_unit", "lstm", "lstm_unit"]

_GRU_ACTIVATIONS = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


def _check_state(state: Variable | None, name: str, width: int, layer: str) -> None:
    check_type(state, name, (Variable, type(None)), layer)
    if state is None:
        return
    check_variable_and_dtype(state, name, WIDE, layer)
    if len(state.shape) != 2 or state.shape[1] != width:
        raise ValueError(
            f"{name} of {layer} must have shape (batch size, {width}), not {state.shape}."
        )


def _need_bias(bias_attr: Any, layer: str) -> None:
    if bias_attr is False:
        raise ValueError(f"bias_attr of {layer} must not be False: the layer needs its bias.")


def _activations(gate: str, cell: str, candidate: str) -> dict[str, str]:
    names = {"gate": gate, "cell": cell, "candidate": candidate}
    return {f"{part}_activation": name for part, name in names.items()}


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
    """Run an LSTM over sequences; return the hidden and cell states of all steps.

    Args:
        input: sequences of projected inputs, shape [N, 4 * hidden size] (from an `fc`).
        size: four times the hidden size.
        h_0: the initial hidden states, zeros by default.
        c_0: the initial cell states, zeros by default.
        param_attr: the attributes of the weights [hidden, 4 * hidden].
        bias_attr: the attributes of the bias, which holds the peephole weights too.
        use_peepholes: whether to use peephole connections.
        is_reverse: whether to process each sequence in reverse.
        gate_activation: the activation of the gates.
        cell_activation: the activation of the cell state in the output.
        candidate_activation: the activation of the candidate cell state.
    """
    _need_bias(bias_attr, "dynamic_lstm")
    check_variable_and_dtype(input, "input", WIDE, "dynamic_lstm")
    helper = LayerHelper("lstm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    width = size // 4
    _check_state(h_0, "h_0", width, "dynamic_lstm")
    _check_state(c_0, "c_0", width, "dynamic_lstm")
    weight = helper.weight([width, 4 * width], dtype)
    bias = helper.bias([1, (7 if use_peepholes else 4) * width], dtype)
    attrs: dict[str, Any] = {"use_peepholes": use_peepholes, "is_reverse": is_reverse}
    attrs |= _activations(gate_activation, cell_activation, candidate_activation)
    hidden, cell, *_ = helper.outputs_of(
        "lstm",
        {"Input": input, "Weight": weight, "Bias": bias, "H0": h_0, "C0": c_0},
        attrs,
        **dict.fromkeys(("Hidden", "Cell", "BatchGate", "BatchCellPreAct"), dtype),
    )
    return hidden, cell


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
    """Run an LSTM whose state is projected to `proj_size`; return projections and cells.

    `proj_activation` is applied to the projection; cells and projections are clamped to
    [-cell_clip, cell_clip] and [-proj_clip, proj_clip]. For the rest see `dynamic_lstm`.
    """
    _need_bias(bias_attr, "dynamic_lstmp")
    check_variable_and_dtype(input, "input", WIDE, "dynamic_lstmp")
    for clip, what in ((cell_clip, "cell_clip"), (proj_clip, "proj_clip")):
        if clip is not None and clip < 0:
            raise ValueError(f"{what} of dynamic_lstmp must not be negative, but is {clip}.")
    helper = LayerHelper("lstmp", param_attr=param_attr, bias_attr=bias_attr, name=name)
    width = size // 4
    for state, slot in ((h_0, "h_0"), (c_0, "c_0")):  # types first, as in Paddle
        check_type(state, slot, (Variable, type(None)), "dynamic_lstmp")
        if state is not None:
            check_variable_and_dtype(state, slot, WIDE, "dynamic_lstmp")
    _check_state(h_0, "h_0", proj_size, "dynamic_lstmp")
    _check_state(c_0, "c_0", width, "dynamic_lstmp")
    weight = helper.weight([proj_size, 4 * width], dtype)
    projection = helper.weight([width, proj_size], dtype)
    bias = helper.bias([1, (7 if use_peepholes else 4) * width], dtype)
    names = ("Projection", "Cell", "", "BatchHidden", "BatchGate", "BatchCellPreAct")
    outputs = {slot: helper.create_variable_for_type_inference(dtype) for slot in names}
    del outputs[""]  # Paddle creates a variable that no op uses, which affects generated names.
    attrs: dict[str, Any] = {"use_peepholes": use_peepholes, "is_reverse": is_reverse}
    attrs |= {"cell_clip": cell_clip, "proj_clip": proj_clip, "proj_activation": proj_activation}
    attrs |= _activations(gate_activation, cell_activation, candidate_activation)
    inputs = {"Input": input, "Weight": weight, "ProjWeight": projection, "Bias": bias}
    inputs |= {"H0": h_0, "C0": c_0}
    helper.append_op(type="lstmp", inputs=inputs, outputs=outputs, attrs=attrs)
    return outputs["Projection"], outputs["Cell"]


@checked(input=WIDE)
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
    """Run a GRU over sequences; return the hidden states of all steps.

    Args:
        input: sequences of projected inputs, shape [N, 3 * size] (from an `fc`).
        size: the hidden size.
        param_attr: the attributes of the weights [size, 3 * size].
        is_reverse: whether to process each sequence in reverse.
        gate_activation: the activation of the update and reset gates.
        candidate_activation: the activation of the candidate state.
        h_0: the initial hidden states, zeros by default.
        origin_mode: whether the update gate keeps the old state (as in the first paper) instead of
            taking the new one.
    """
    helper = LayerHelper("gru", param_attr=param_attr, bias_attr=bias_attr)
    _check_state(h_0, "h_0", size, "dynamic_gru")
    dtype = input.dtype
    weight = helper.weight([size, 3 * size], dtype)
    bias = helper.bias([1, 3 * size], dtype)
    attrs: dict[str, Any] = {"is_reverse": is_reverse, "origin_mode": origin_mode}
    attrs |= {"gate_activation": gate_activation, "activation": candidate_activation}
    hidden, *_ = helper.outputs_of(
        "gru",
        {"Input": input, "Weight": weight, "Bias": bias, "H0": h_0},
        attrs,
        **dict.fromkeys(("Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden"), dtype),
    )
    return hidden


@checked(
    input=WIDE,
    hidden=WIDE,
    size=int,
    activation=one_of(*_GRU_ACTIVATIONS),
    gate_activation=one_of(*_GRU_ACTIVATIONS),
)
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
    """Run one GRU step; return the new hidden state, the reset previous one, and the gates.

    Args:
        input: projected inputs, shape [batch, size].
        hidden: the previous hidden state, shape [batch, size / 3].
        size: three times the hidden size.
        activation: the activation of the candidate state.
        gate_activation: the activation of the gates.
        origin_mode: as in `dynamic_gru`.
    """
    helper = LayerHelper("gru_unit", param_attr=param_attr, bias_attr=bias_attr)
    dtype = input.dtype
    width = size // 3
    weight = helper.weight([width, 3 * width], dtype)
    inputs = {"Input": input, "HiddenPrev": hidden, "Weight": weight}
    inputs["Bias"] = helper.bias([1, 3 * width], dtype)
    attrs = {
        "activation": _GRU_ACTIVATIONS[activation],
        "gate_activation": _GRU_ACTIVATIONS[gate_activation],
        "origin_mode": origin_mode,
    }
    gate, reset, new = helper.outputs_of(
        "gru_unit", inputs, attrs, Gate=dtype, ResetHiddenPrev=dtype, Hidden=dtype
    )
    return new, reset, gate


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Run one LSTM step with its own projection; return the new hidden state and cell.

    Args:
        x_t: inputs of shape [batch, D].
        hidden_t_prev: the previous hidden state, [batch, size].
        cell_t_prev: the previous cell state, [batch, size].
        forget_bias: added to the forget gate.
    """
    helper = LayerHelper("lstm_unit", name=name)
    states = {"x_t": x_t, "hidden_t_prev": hidden_t_prev, "cell_t_prev": cell_t_prev}
    for what, var in states.items():
        check_variable_and_dtype(var, what, WIDE, "lstm_unit")
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
    cell, hidden = helper.outputs_of(
        "lstm_unit",
        {"X": projected, "C_prev": cell_t_prev},
        {"forget_bias": float(forget_bias)},
        C=x_t.dtype,
        H=x_t.dtype,
    )
    return hidden, cell


@checked(input=WIDE, init_h=WIDE, init_c=WIDE, max_len=int, hidden_size=int, num_layers=int)
def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Any = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """Run an LSTM of several layers over padded sequences; return (out, last h, last c).

    Args:
        input: shape [steps, batch, size].
        init_h: the initial hidden states, shape [layers x directions, batch, hidden_size].
        init_c: the initial cell states, of the same shape.
        max_len: the maximum number of steps; accepted, but taken from the input.
        hidden_size: the size of a state.
        num_layers: the number of layers.
        dropout_prob: the probability of dropping an output between layers.
        is_bidirec: whether a second LSTM runs in reverse; outputs are concatenated.
        is_test: whether dropout is off.
        default_initializer: initializes the weights, which are one vector.
        seed: accepted; `fluid.Program.random_seed` seeds dropout.
    """
    helper = LayerHelper("cudnn_lstm", name=name)
    ways, size = 2 if is_bidirec else 1, input.shape[-1]
    widths = [size] + [hidden_size * ways] * (num_layers - 1)
    total = sum(4 * hidden_size * (width + hidden_size + 2) * ways for width in widths)
    weight = helper.weight([total], input.dtype, default_initializer)
    out, last_h, last_c = helper.outputs_of(
        "cudnn_lstm",
        {"Input": input, "InitH": init_h, "InitC": init_c, "W": weight},
        {
            "max_len": max_len,
            "is_bidirec": is_bidirec,
            "input_size": size,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "is_test": is_test,
            "dropout_prob": dropout_prob,
            "seed": seed,
        },
        Out=input.dtype,
        last_h=input.dtype,
        last_c=input.dtype,
    )
    return out, last_h, last_c
