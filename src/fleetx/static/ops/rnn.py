"""Recurrent ops: LSTM and GRU over a batch of sequences, and single steps of both.

Sequences are processed longest first, so that the active ones are the first rows of the state at
each time step; the only loop is the one over time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import projected, shapes
from fleetx.static.shapes.lod import Lods, as_tensor, lod_of

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": lambda x: x,
}
_NUMBERED = ("identity", "sigmoid", "tanh", "relu")  # gru_unit names activations by number


def activation_named(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function of an activation's name."""
    if name not in _ACTIVATIONS:
        raise ValueError(f"{name!r} is not one of the activations {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def _gate(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the activation of a gate of `lstm` or `gru`; a sigmoid clips its input at 13.

    Paddle's kernels clip there: an open gate is off by 2.3e-6, which adds up over steps.
    """
    if name == "sigmoid":
        return lambda x: torch.sigmoid(x.clamp(max=13.0))
    return activation_named(name)


def _lstm_activations(gate: str, cell: str, candidate: str) -> dict[str, Callable[..., Any]]:
    return {
        "gate": _gate(gate),
        "cell": activation_named(cell),
        "candidate": activation_named(candidate),
    }


class _Steps:
    """The rows of a batch of sequences by time step."""

    def __init__(self, offsets: list[int], reverse: bool, device: torch.device) -> None:
        lengths = np.diff(offsets)
        rank = np.argsort(-lengths, kind="stable")
        starts, lengths = np.asarray(offsets[:-1])[rank], lengths[rank]
        self.count = len(rank)
        self.rank = as_tensor(rank, device)
        rows = []
        for step in range(int(lengths.max(initial=0))):
            active = int((lengths > step).sum())
            place = lengths[:active] - 1 - step if reverse else step
            rows.append(starts[:active] + place)
        self.sizes = [len(r) for r in rows]
        order = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        self.order = as_tensor(order, device)
        # Index of rows of all steps: puts them into the order of the batch.
        self.back = as_tensor(np.argsort(order), device)

    def cut(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the rows of each time step."""
        return x[self.order].split(self.sizes)

    def columns(
        self, results: Sequence[tuple[torch.Tensor, ...]], like: torch.Tensor, count: int
    ) -> list[torch.Tensor]:
        """Return what all steps computed, step after step, as Paddle's `Batch...` outputs are."""
        if not results:
            return [like] * count
        return [torch.cat(column) for column in zip(*results, strict=True)]

    def first(self, given: Any, width: int, like: torch.Tensor) -> torch.Tensor:
        """Return the first state: the given one in the order of ranks, or zeros."""
        return like.new_zeros(self.count, width) if given is None else given[self.rank]


def _lstm_step(
    gates: torch.Tensor,
    cell: torch.Tensor,
    peepholes: tuple[torch.Tensor, ...] | None,
    act: dict[str, Callable[[torch.Tensor], torch.Tensor]],
    clip: float = 0.0,
) -> tuple[torch.Tensor, ...]:
    """Return hidden state, cell, activated cell; candidate, input, forget and output gate."""
    new, take, keep, show = gates.chunk(4, dim=1)
    if peepholes is not None:
        take, keep = take + peepholes[0] * cell, keep + peepholes[1] * cell
    new, take, keep = act["candidate"](new), act["gate"](take), act["gate"](keep)
    cell = new * take + keep * cell
    if clip > 0:
        cell = cell.clamp(-clip, clip)
    if peepholes is not None:
        show = show + peepholes[2] * cell
    show, shown = act["gate"](show), act["cell"](cell)
    return show * shown, cell, shown, new, take, keep, show


def _split_bias(
    bias: torch.Tensor, width: int, use_peepholes: bool
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...] | None]:
    flat = bias.reshape(-1)
    peepholes = flat[4 * width :].split(width) if use_peepholes else None
    return flat[: 4 * width], peepholes


@op(
    "lstm",
    inputs="Input H0? C0? Weight Bias",
    outputs="Hidden Cell BatchGate? BatchCellPreAct?",
    infer=projected("Input", "Weight", 0, "Hidden", "Cell"),
)
def lstm(
    x: Any,
    h0: Any,
    c0: Any,
    weight: Any,
    bias: Any,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    lod: Lods,
) -> Any:
    """LSTM over sequences of projected inputs; returns all hidden states and cells."""
    act = _lstm_activations(gate_activation, cell_activation, candidate_activation)
    steps = _Steps(lod_of(lod, "Input", "lstm")[-1], is_reverse, x.device)
    width = weight.shape[0]
    shift, peepholes = _split_bias(bias, width, use_peepholes)
    hidden, cell = steps.first(h0, width, x), steps.first(c0, width, x)
    results = []
    for part in steps.cut(x + shift):
        gates = torch.addmm(part, hidden[: len(part)], weight)
        results.append(_lstm_step(gates, cell[: len(part)], peepholes, act))
        hidden, cell = results[-1][:2]
    hiddens, cells, shown, *parts = steps.columns(results, x[:, :width], 7)
    return hiddens[steps.back], cells[steps.back], torch.cat(parts, 1), shown


@op(
    "lstmp",
    inputs="Input H0? C0? Weight ProjWeight Bias",
    outputs="Projection Cell BatchGate? BatchCellPreAct? BatchHidden?",
    infer=shapes(
        "Input ProjWeight",
        lambda op, x, w: {
            "Projection": ((x.shape[0], w.shape[1]), x.dtype, x.lod_level),
            "Cell": ((x.shape[0], w.shape[0]), x.dtype, x.lod_level),
        },
    ),
)
def lstmp(
    x: Any,
    h0: Any,
    c0: Any,
    weight: Any,
    proj_weight: Any,
    bias: Any,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    cell_clip: float = 0.0,
    proj_clip: float = 0.0,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    lod: Lods,
) -> Any:
    """LSTM whose hidden state is projected to another width before it goes to the next step."""
    act = _lstm_activations(gate_activation, cell_activation, candidate_activation)
    steps = _Steps(lod_of(lod, "Input", "lstmp")[-1], is_reverse, x.device)
    width, projected = proj_weight.shape
    act_projection = activation_named(proj_activation)
    shift, peepholes = _split_bias(bias, width, use_peepholes)
    state, cell = steps.first(h0, projected, x), steps.first(c0, width, x)
    states, results = [], []
    for part in steps.cut(x + shift):
        gates = torch.addmm(part, state[: len(part)], weight)
        results.append(_lstm_step(gates, cell[: len(part)], peepholes, act, cell_clip))
        hidden, cell = results[-1][:2]
        state = act_projection(hidden @ proj_weight)
        if proj_clip > 0:
            state = state.clamp(-proj_clip, proj_clip)
        states.append((state,))
    (projections,) = steps.columns(states, x[:, :projected], 1)
    hiddens, cells, shown, *parts = steps.columns(results, x[:, :width], 7)
    return projections[steps.back], cells[steps.back], torch.cat(parts, 1), shown, hiddens


def _gru_weights(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights of gates [D, 2D] and candidate [D, D], stored one after the other."""
    width = weight.shape[0]
    flat = weight.reshape(-1)
    return flat[: 2 * width * width].view(width, -1), flat[2 * width * width :].view(width, width)


def _gru_step(
    x: torch.Tensor,
    hidden: torch.Tensor,
    weights: tuple[torch.Tensor, torch.Tensor],
    act: Callable[[torch.Tensor], torch.Tensor],
    act_gate: Callable[[torch.Tensor], torch.Tensor],
    origin_mode: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gates (update, reset, candidate), the reset state, and the new state."""
    width = hidden.shape[1]
    gates = act_gate(torch.addmm(x[:, : 2 * width], hidden, weights[0]))
    update, reset = gates.chunk(2, dim=1)
    kept = reset * hidden
    new = act(torch.addmm(x[:, 2 * width :], kept, weights[1]))
    change = 1 - update if origin_mode else update
    return torch.cat([gates, new], dim=1), kept, torch.lerp(hidden, new, change)


@op(
    "gru",
    inputs="Input H0? Weight Bias?",
    outputs="BatchGate? BatchResetHiddenPrev? BatchHidden? Hidden",
    infer=projected("Input", "Weight", 0, "Hidden"),
)
def gru(
    x: Any,
    h0: Any,
    weight: Any,
    bias: Any,
    *,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    is_reverse: bool = False,
    origin_mode: bool = False,
    lod: Lods,
) -> Any:
    """GRU over sequences whose input projections are given; returns all hidden states."""
    steps = _Steps(lod_of(lod, "Input", "gru")[-1], is_reverse, x.device)
    width = weight.shape[0]
    weights = _gru_weights(weight)
    act, act_gate = activation_named(activation), _gate(gate_activation)
    hidden = steps.first(h0, width, x)
    results = []
    for part in steps.cut(x if bias is None else x + bias):
        step = _gru_step(part, hidden[: len(part)], weights, act, act_gate, origin_mode)
        results.append(step)
        hidden = step[-1]
    gates, kept, hiddens = steps.columns(results, x[:, :width], 3)
    return gates, kept, hiddens, hiddens[steps.back]


@op("gru_unit", inputs="Input HiddenPrev Weight Bias?", outputs="Gate ResetHiddenPrev Hidden")
def gru_unit(
    x: Any,
    hidden: Any,
    weight: Any,
    bias: Any,
    *,
    activation: int = 2,
    gate_activation: int = 1,
    origin_mode: bool = False,
) -> Any:
    """One step of a GRU on a plain batch."""
    return _gru_step(
        x if bias is None else x + bias,
        hidden,
        _gru_weights(weight),
        _ACTIVATIONS[_NUMBERED[activation]],
        _ACTIVATIONS[_NUMBERED[gate_activation]],
        origin_mode,
    )


@op("lstm_unit", inputs="X C_prev", outputs="C H")
def lstm_unit(x: Any, cell: Any, *, forget_bias: float = 0.0) -> Any:
    """One step of an LSTM on a plain batch; X holds input, forget, output gate and candidate."""
    take, keep, show, new = x.chunk(4, dim=1)
    cell = torch.sigmoid(keep + forget_bias) * cell + torch.sigmoid(take) * torch.tanh(new)
    return cell, torch.sigmoid(show) * torch.tanh(cell)
