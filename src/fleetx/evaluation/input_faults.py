"""Results of the local model on inputs that are prepared differently: swapped channels, another
normalisation, another layout.

`input_changes()` yields candidates, likely ones first; the first whose vectors agree with the
endpoint's results explains the difference. A difference without such a candidate may be an
arbitrary scale and offset: `fitted_scale()` looks for them with damped least squares.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from fleetx.evaluation.output_faults import as_bfloat16, as_float16
from fleetx.evaluation.probe import Arrays, Finding, Probe

CHANNELS = "channel order"
PREPROCESSING = "preprocessing"
LAYOUT = "layout of the input"

# Mean of red, green and blue of ImageNet's images, relative to 1.
_MEAN = np.array([0.485, 0.456, 0.406])
_STD = np.array([0.229, 0.224, 0.225])

Change = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Candidate:
    """A way in which the endpoint may prepare its inputs."""

    kind: str
    words: str
    """The completion of "the endpoint seems to ..."."""
    apply: Callable[[Arrays], Arrays]
    """The function from the local model's inputs to those of the endpoint's model."""


def input_changes(inputs: Arrays) -> Iterator[Candidate]:
    """Yield the candidates for such inputs: single changes, then swapped channels and a change."""
    changes = list(_changes(inputs))
    for kind, words, change in changes:
        yield Candidate(kind, words, _applied(change))
    yield from _swapped_inputs(inputs)
    if any(kind == CHANNELS for kind, _, _ in changes):
        for _, words, change in (each for each in changes if each[0] == PREPROCESSING):
            # A change of the pixels and then a swap, or pixels that were swapped before.
            yield Candidate(PREPROCESSING, f"{_SWAP}, and to {words}", _applied(change, _swap))
            first = _applied(_swapped_pixels, change)
            yield Candidate(PREPROCESSING, f"{_SWAP} first, and to {words}", first)


def channel_axis(array: np.ndarray) -> int | None:
    """Return the dimension of red, green and blue, if the array is a batch of pictures."""
    if array.ndim != 4 or array.dtype.kind not in "fu":
        return None
    return next((axis for axis in (1, 3) if array.shape[axis] == 3), None)


def _applied(*changes: Change) -> Callable[[Arrays], Arrays]:
    def apply(inputs: Arrays) -> Arrays:
        made = {}
        for name, array in inputs.items():
            changed = array
            for change in changes:
                changed = change(changed)
            made[name] = np.ascontiguousarray(changed, dtype=array.dtype)
        return made

    return apply


def _changes(inputs: Arrays) -> Iterator[tuple[str, str, Change]]:
    pictures = any(channel_axis(array) is not None for array in inputs.values())
    if pictures:
        yield CHANNELS, _SWAP, _swap
        yield CHANNELS, f"{_SWAP} before mean and deviation are applied", _swapped_pixels
    yield from _scales(pictures)
    if pictures:
        for order in ((1, 0, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1)):
            words = f"put the channels in the order {order}"
            yield CHANNELS, words, _channels(order)
    if any(array.ndim == 4 for array in inputs.values()):
        yield LAYOUT, "read NCHW data as NHWC without moving it", _reinterpreted((0, 2, 3, 1))
        yield LAYOUT, "read NHWC data as NCHW without moving it", _reinterpreted((0, 3, 1, 2))
        yield LAYOUT, "mirror the pictures", _pictures(lambda x: x[..., ::-1])
        yield LAYOUT, "turn the pictures upside down", _pictures(lambda x: x[..., ::-1, :])
        yield LAYOUT, "swap height and width", _pictures(_transposed)
    yield PREPROCESSING, "cut the inputs off at 0 and 1", _floats(lambda x: x.clip(0, 1))
    yield PREPROCESSING, "keep the inputs in 8 bits", _floats(lambda x: np.round(x * 255) / 255)
    yield "precision", "round the inputs to float16", _floats(as_float16)
    yield "precision", "round the inputs to bfloat16", _floats(as_bfloat16)
    yield PREPROCESSING, "leave the inputs at zero", _floats(np.zeros_like)
    yield PREPROCESSING, "count the input's ids from 1 instead of 0", _ids(1)
    yield PREPROCESSING, "count the input's ids from 0 instead of 1", _ids(-1)


def _scales(pictures: bool) -> Iterator[tuple[str, str, Change]]:
    if pictures:
        normal = _per_channel
        table: list[tuple[str, Change]] = [
            ("leave out mean and deviation", normal(_STD, _MEAN)),
            ("leave out the deviation", normal(_STD, 0 * _MEAN)),
            ("leave out the mean", normal(1 + 0 * _MEAN, _MEAN / _STD)),
            ("take pixels of 0 to 255 without mean and deviation", normal(255 * _STD, 255 * _MEAN)),
            ("take pixels of 0 to 255 minus the mean", normal(255 * _STD, 0 * _MEAN)),
            ("take pixels from -1 to 1", normal(2 * _STD, 2 * _MEAN - 1)),
            ("apply mean and deviation twice", normal(1 / _STD, -_MEAN / _STD)),
            (
                "apply mean and deviation of blue to red",
                normal(_STD / _STD[::-1], (_MEAN - _MEAN[::-1]) / _STD[::-1]),
            ),
        ]
        for words, change in table:
            yield PREPROCESSING, words, change
    for words, scale, offset in (
        ("divide the inputs by 255", 1 / 255, 0.0),
        ("multiply the inputs by 255", 255.0, 0.0),
        ("bring inputs of 0 to 1 to -1 to 1", 2.0, -1.0),
        ("bring inputs of -1 to 1 to 0 to 1", 0.5, 0.5),
        ("change the sign of the inputs", -1.0, 0.0),
        ("subtract the inputs from 1", -1.0, 1.0),
    ):
        yield PREPROCESSING, words, _floats(_line(scale, offset))
    yield PREPROCESSING, "bring every sample to mean 0 and deviation 1", _floats(_standard)


def _line(scale: float, offset: float) -> Change:
    return lambda x: x * scale + offset


def _standard(x: np.ndarray) -> np.ndarray:
    axes = tuple(range(1, x.ndim))
    deviation = x.std(axis=axes, keepdims=True)
    return (x - x.mean(axis=axes, keepdims=True)) / np.where(deviation == 0, 1, deviation)


def _transposed(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2) if x.shape[-1] == x.shape[-2] else x


def _floats(change: Change) -> Change:
    return lambda x: change(x) if x.dtype.kind == "f" else x


def _ids(step: int) -> Change:
    return lambda x: np.maximum(x + step, 0) if x.dtype.kind == "i" else x


def _pictures(change: Change) -> Change:
    """Apply a change to height and width, in any channel layout."""

    def changed(x: np.ndarray) -> np.ndarray:
        if x.ndim != 4:
            return x
        if channel_axis(x) == 3:
            return np.moveaxis(change(np.moveaxis(x, 3, 1)), 1, 3)
        return change(x)

    return changed


def _channels(order: tuple[int, ...]) -> Change:
    def changed(x: np.ndarray) -> np.ndarray:
        axis = channel_axis(x)
        return x if axis is None else np.take(x, order, axis)

    return changed


def _per_channel(scale: np.ndarray, offset: np.ndarray) -> Change:
    def changed(x: np.ndarray) -> np.ndarray:
        axis = channel_axis(x)
        if axis is None or x.dtype.kind != "f":
            return x
        form = [-1 if i == axis else 1 for i in range(4)]
        return x * scale.reshape(form) + offset.reshape(form)

    return changed


_SWAP = "swap the channels (BGR for RGB)"
_swap = _channels((2, 1, 0))
_denormalised = _per_channel(_STD, _MEAN)
_normalised = _per_channel(1 / _STD, -_MEAN / _STD)


def _swapped_pixels(x: np.ndarray) -> np.ndarray:
    """Swap the channels of pixels before ImageNet's mean is subtracted."""
    return _normalised(_swap(_denormalised(x)))


def _reinterpreted(order: tuple[int, ...]) -> Change:
    return lambda x: x.transpose(order).reshape(x.shape) if x.ndim == 4 else x


def _swapped_inputs(inputs: Arrays) -> Iterator[Candidate]:
    for a, b in itertools.combinations(inputs, 2):
        if inputs[a].shape == inputs[b].shape and inputs[a].dtype == inputs[b].dtype:
            words = f"swap the inputs {a!r} and {b!r}"
            yield Candidate(LAYOUT, words, partial(_exchanged, a=a, b=b))


def _exchanged(inputs: Arrays, a: str, b: str) -> Arrays:
    return {**inputs, a: inputs[b], b: inputs[a]}


def fitted_scale(probe: Probe, in_time: Callable[[], bool]) -> Finding | None:
    """Look for a scale and an offset of the inputs, first common, then per channel."""
    floats = [name for name, array in probe.inputs.items() if array.dtype.kind == "f"]
    if len(floats) != 1 or not in_time():
        return None
    (name,) = floats
    x = probe.inputs[name].astype(np.float64)
    axis = channel_axis(probe.inputs[name])
    found = None
    for groups in (1, 3) if axis is not None else (1,):
        form = [-1 if i == axis else 1 for i in range(x.ndim)]

        def change(theta: np.ndarray, groups: int = groups, form: list[int] = form) -> Arrays:
            scale, offset = (
                part.reshape(form) if groups > 1 else part for part in np.split(theta, 2)
            )
            return {**probe.inputs, name: (x * scale + offset).astype(probe.inputs[name].dtype)}

        for scale, offset in ((1.0, 0.0), (0.25, 0.0), (1 / 255, 0.0), (64.0, 0.0)):
            theta = np.repeat([scale, offset], groups)
            found = _least_squares(probe, change, theta, in_time)
            if found is not None:
                return Finding(PREPROCESSING, _fit_words(name, found, groups))
    return None


def _fit_words(name: str, theta: np.ndarray, groups: int) -> str:
    scale, offset = (", ".join(f"{v:.4g}" for v in part) for part in np.split(theta, 2))
    each = " in its channels" if groups > 1 else ""
    return (
        f"the endpoint prepares its inputs differently: with input {name!r} multiplied by {scale} "
        f"and shifted by {offset}{each}, the saved model gives the endpoint's answers."
    )


def _least_squares(
    probe: Probe,
    change: Callable[[np.ndarray], Arrays],
    theta: np.ndarray,
    in_time: Callable[[], bool],
) -> np.ndarray | None:
    """Return the parameters that explain the results, by damped Gauss-Newton steps."""

    def off(theta: np.ndarray) -> np.ndarray:
        found = probe.run(change(theta))
        parts = [
            (probe.flat(found, n) - probe.flat(probe.actual, n)).reshape(-1) for n in probe.expected
        ]
        return np.nan_to_num(np.concatenate(parts), nan=1e6, posinf=1e6, neginf=-1e6)

    damping, now = 1e-3, off(theta)
    for _ in range(30):
        if probe.explained_by(probe.run(change(theta))):
            return theta
        if not in_time():
            return None
        # Steps that are representable in float32, and large enough to exceed rounding errors.
        steps = 1e-3 * np.maximum(np.abs(theta), 1e-2)
        slopes = [
            (off(theta + step * unit) - now) / step
            for step, unit in zip(steps, np.eye(len(theta)), strict=True)
        ]
        jacobian = np.stack(slopes, axis=1)
        square = jacobian.T @ jacobian
        for _ in range(6):
            regular = square + damping * np.diag(np.diag(square) + 1e-12)
            trial = theta - np.linalg.solve(regular, jacobian.T @ now)
            then = off(trial)
            if then @ then < now @ now:
                theta, now, damping = trial, then, damping / 5
                break
            damping *= 5
        else:
            return None
    return None
