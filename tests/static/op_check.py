"""Check one op: its outputs against expected values, its gradients against central differences.

The op is put into a program with `append_op`, run by the Executor, and differentiated by
`gradients`, so lowering, shape inference and backward are checked with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fleetx import static
from fleetx.static.graph.op_registry import get_op
from fleetx.static.readers.lod_tensor import create_lod_tensor

Value = Any  # an array, or (array, sequence lengths), or a list of either


class OpProgram:
    """A program of one op, its feeds, and the weighted sum of its outputs as a loss."""

    def __init__(
        self, type: str, inputs: dict[str, Value], attrs: dict[str, Any], counts: dict[str, int]
    ) -> None:
        self.definition = get_op(type)
        self.main = static.Program()
        self.feeds: dict[str, Any] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.inputs: dict[str, list[Any]] = {}
        self.outputs: dict[str, list[Any]] = {}
        with static.program_guard(self.main, static.Program()), static.unique_name.guard():
            block = self.main.global_block()
            for slot, value in inputs.items():
                values = value if isinstance(value, list) else [value]
                self.inputs[slot] = [
                    self._add_input(f"{slot}_{i}", v) for i, v in enumerate(values)
                ]
            for slot_def in self.definition.outputs:
                count = counts.get(slot_def.name, 0 if slot_def.optional else 1)
                if count:
                    self.outputs[slot_def.name] = [
                        block.create_var(name=f"out_{slot_def.name}_{i}") for i in range(count)
                    ]
            self.op = block.append_op(
                type=type, inputs=self.inputs, outputs=self.outputs, attrs=attrs
            )

    def _add_input(self, name: str, value: Any) -> Any:
        array, lengths = value if isinstance(value, tuple) else (value, None)
        array = np.asarray(array)
        var = self.main.global_block().create_var(
            name=name,
            shape=array.shape,
            dtype=str(array.dtype),
            lod_level=0 if lengths is None else len(lengths),
            is_data=True,
            stop_gradient=array.dtype.kind != "f",
        )
        self.arrays[name] = array
        self.feeds[name] = (
            array if lengths is None else create_lod_tensor(array, lengths, static.CPUPlace())
        )
        return var

    def run(self, fetch: Sequence[Any], feeds: dict[str, Any] | None = None) -> list[np.ndarray]:
        """Return fetched values as arrays."""
        feeds = self.feeds if feeds is None else feeds
        found = static.Executor(static.CPUPlace()).run(
            self.main, feed=feeds, fetch_list=list(fetch), return_numpy=False
        )
        return [np.asarray(v) for v in found]

    def add_loss(self, slots: Iterable[str], values: dict[str, list[np.ndarray]]) -> Any:
        """Append the sum of all outputs of these slots, each element with a weight of its own."""
        rng = np.random.default_rng(7)
        terms = []
        with static.program_guard(self.main, static.Program()):
            block = self.main.global_block()
            for slot in slots:
                for var, value in zip(self.outputs[slot], values[slot], strict=True):
                    weight = rng.uniform(0.5, 1.5, value.shape).astype(value.dtype)
                    name = f"weight_{var.name}"
                    block.create_var(
                        name=name, shape=value.shape, dtype=str(value.dtype), is_data=True
                    ).stop_gradient = True
                    self.feeds[name] = weight
                    product, total = (block.create_var(name=f"{p}_{var.name}") for p in "pt")
                    block.append_op(
                        type="elementwise_mul",
                        inputs={"X": [var], "Y": [name]},
                        outputs={"Out": [product]},
                    )
                    block.append_op(
                        type="reduce_sum",
                        inputs={"X": [product]},
                        outputs={"Out": [total]},
                        attrs={"reduce_all": True},
                    )
                    terms.append(total)
            loss = block.create_var(name="loss")
            block.append_op(type="sum", inputs={"X": terms}, outputs={"Out": [loss]})
        return loss

    def numeric(self, loss: Any, name: str, delta: float) -> np.ndarray:
        """Return the gradient by central differences."""
        array = self.arrays[name]
        grad = np.zeros_like(array)
        feed = dict(self.feeds)
        for index in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = array.copy()
                moved[index] += sign * delta
                original = self.feeds[name]
                if not isinstance(original, np.ndarray):
                    moved = create_lod_tensor(
                        moved, original.recursive_sequence_lengths(), static.CPUPlace()
                    )
                feed[name] = moved
                ends.append(self.run([loss], feed)[0].item())
            grad[index] = (ends[0] - ends[1]) / (2 * delta)
        return grad


def check_op(
    type: str,
    inputs: dict[str, Value],
    attrs: dict[str, Any] | None = None,
    outputs: dict[str, Any] | None = None,
    *,
    counts: dict[str, int] | None = None,
    grad_of: Sequence[str] | None = None,
    grad_from: Sequence[str] | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    delta: float = 1e-5,
    grad_rtol: float = 1e-5,
    grad_atol: float = 1e-7,
) -> dict[str, list[np.ndarray]]:
    """Run an op, compare it with `outputs`, check its gradients, and return what it computed.

    `counts` says how many variables a list output has (and asks for optional outputs). Gradients
    are checked for float64 inputs that may have one; `grad_of` chooses input slots ([]: none).
    `grad_from` chooses the output slots that make up the loss (all float ones by default).
    """
    counts = dict(counts or {})
    for slot, expected in (outputs or {}).items():
        counts.setdefault(slot, len(expected) if isinstance(expected, list) else 1)
    program = OpProgram(type, inputs, attrs or {}, counts)
    names = [(slot, var) for slot, group in program.outputs.items() for var in group]
    found: dict[str, list[np.ndarray]] = {slot: [] for slot in program.outputs}
    kept = [(s, v) for s, v in names if s != "XShape"]
    for (slot, var), value in zip(kept, program.run([v for _, v in kept]), strict=True):
        found[slot].append(value)
        assert len(var.shape) == value.ndim, f"{type}: {var.name} {var.shape} {value.shape}"
        for declared, real in zip(var.shape, value.shape, strict=True):
            assert declared in (-1, real), f"{type}: {var.name} {var.shape} {value.shape}"
        assert static.convert_dtype(value.dtype) == var.dtype, f"{type}: {value.dtype} {var.dtype}"
    for slot, expected in (outputs or {}).items():
        wanted = expected if isinstance(expected, list) else [expected]
        for value, target in zip(found[slot], wanted, strict=True):
            assert value.shape == np.shape(target), f"{type}: {value.shape}, {np.shape(target)}"
            np.testing.assert_allclose(value, target, rtol, atol, err_msg=f"{type}: {slot}")
    if program.definition.grad is not None and not program.definition.random:
        _check_gradients(program, found, grad_of, grad_from, delta, grad_rtol, grad_atol)
    return found


def _check_gradients(
    program: OpProgram,
    found: dict[str, list[np.ndarray]],
    grad_of: Sequence[str] | None,
    grad_from: Sequence[str] | None,
    delta: float,
    rtol: float,
    atol: float,
) -> None:
    definition = program.definition
    slots = [
        slot
        for slot in (program.inputs if grad_of is None else grad_of)
        if slot not in definition.no_grad_slots
        and all(program.arrays[v.name].dtype == np.float64 for v in program.inputs[slot])
    ]
    from_slots = [
        slot
        for slot in (found if grad_from is None else grad_from)
        if found[slot] and all(v.dtype == np.float64 for v in found[slot])
    ]
    if not slots or not from_slots:
        return
    loss = program.add_loss(from_slots, found)
    variables = [v for slot in slots for v in program.inputs[slot]]
    grads = static.gradients([loss], variables)
    assert len(grads) == len(variables), f"{definition.type}: an input has no gradient"
    values = program.run(grads)
    for var, value in zip(variables, values, strict=True):
        expected = program.numeric(loss, var.name, delta)
        np.testing.assert_allclose(
            value, expected, rtol, atol, err_msg=f"{definition.type}: gradient of {var.name}"
        )
