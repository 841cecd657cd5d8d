"""Update ops for five steps against the formulas written out in NumPy (float64)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from update_formulas import ADAM, BETAS, BY_NAME, FUSED, RATE, RMS, STEPS, State

from fleetx import static
from fleetx.static.graph.op_registry import get_op
from fleetx.static.shapes.infer_shape import ShapeError


def start(state: State, seed: int, shape: tuple[int, ...] = (4, 3)) -> State:
    """Return float64 arrays for a parameter and its state."""
    values = {"Param": np.random.default_rng(seed).standard_normal(shape)}
    for slot, value in state.items():
        values[slot] = np.array(value) if isinstance(value, list) else np.full(shape, float(value))
    return values


def gradients(seed: int, shape: tuple[int, ...] = (4, 3)) -> list[Any]:
    rng = np.random.default_rng(seed + 100)
    return [rng.standard_normal(shape) for _ in range(STEPS)]


def tensors(values: State) -> dict[str, torch.Tensor]:
    return {slot: torch.tensor(value, dtype=torch.float64) for slot, value in values.items()}


def attributes(op_type: str, attrs: State) -> State:
    op_def = get_op(op_type)
    full = {**{k: a.default for k, a in op_def.attrs.items()}, **attrs}
    return {k: v for k, v in full.items() if k in op_def.names}


def arguments(op_type: str, held: dict[str, torch.Tensor], grad: torch.Tensor) -> tuple[Any, ...]:
    return tuple(grad if s.name == "Grad" else held.get(s.name) for s in get_op(op_type).inputs)


def assert_same(held: dict[str, torch.Tensor], expected: State) -> None:
    for slot, value in expected.items():
        np.testing.assert_allclose(held[slot].numpy(), value, rtol=1e-6, atol=1e-7, err_msg=slot)


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("name", BY_NAME)
def test_follows_its_formula(name: str, layout: str) -> None:
    op_type, state, attrs, reference = BY_NAME[name]
    expected = start(state, 0)
    held = tensors(expected)
    bound = attributes(op_type, attrs)
    for grad in gradients(0):
        tensor = torch.tensor(grad)
        if layout == "transposed":  # same values, other strides: the fused kernels cannot take it
            tensor = tensor.t().contiguous().t()
        get_op(op_type).fn(*arguments(op_type, held, tensor), **bound)
        reference(expected, grad)
    assert_same(held, expected)


@pytest.mark.parametrize("name", FUSED)
def test_fused_call_updates_each_as_alone(name: str) -> None:
    op_type, state, attrs, reference = BY_NAME[name]
    shapes = [(4, 3), (7,), (2, 2, 2)]
    expected = [start(state, i, shape) for i, shape in enumerate(shapes)]
    held = [tensors(values) for values in expected]
    rate = held[0].get("LearningRate")
    fused = get_op(op_type).fused
    assert fused is not None
    for step in range(STEPS):
        grads = [gradients(i, shape)[step] for i, shape in enumerate(shapes)]
        rows = []
        for own, grad in zip(held, grads, strict=True):
            own["LearningRate"] = rate  # one tensor for all, as the lowering passes it
            rows.append(arguments(op_type, own, torch.tensor(grad)))
        results = fused(tuple(rows), **attributes(op_type, attrs))
        assert [r if isinstance(r, torch.Tensor) else r[0] for r in results] == [r[0] for r in rows]
        for values, grad in zip(expected, grads, strict=True):
            reference(values, grad)
    for own, values in zip(held, expected, strict=True):
        assert_same(own, values)


def test_fused_call_with_different_rates_and_powers() -> None:
    op_def = get_op("adam")
    attrs = attributes("adam", BETAS)
    alone = [tensors(start({**ADAM, **RATE}, i)) for i in range(3)]
    alone[1]["LearningRate"] = torch.tensor([0.5], dtype=torch.float64)
    alone[2]["Beta1Pow"] = torch.tensor([0.5], dtype=torch.float64)
    together = [{k: v.clone() for k, v in s.items()} for s in alone]
    grads = [torch.tensor(gradients(i)[0]) for i in range(3)]
    assert op_def.fused is not None
    op_def.fused([arguments("adam", s, g) for s, g in zip(together, grads, strict=True)], **attrs)
    for own, grad in zip(alone, grads, strict=True):
        op_def.fn(*arguments("adam", own, grad), **attrs)
    for own, other in zip(alone, together, strict=True):
        assert_same(other, {k: v.numpy() for k, v in own.items()})


def test_rate_of_zero_changes_nothing() -> None:
    held = tensors(start({**ADAM, "LearningRate": [0.0]}, 0))
    before = held["Param"].clone()
    attrs = attributes("adamw", {**BETAS, "coeff": 0.2, "with_decay": True})
    get_op("adamw").fn(*arguments("adamw", held, torch.ones(4, 3, dtype=torch.float64)), **attrs)
    assert torch.equal(held["Param"], before)


def test_noise_of_dpsgd_has_its_deviation_and_follows_the_seed() -> None:
    def step(seed: int) -> torch.Tensor:
        param = torch.zeros(20000)
        attrs = {"clip": 1.0, "batch_size": 4.0, "sigma": 2.0, "seed": seed}
        return get_op("dpsgd").fn(param, torch.zeros(20000), torch.ones(1), **attrs)

    assert step(3).std().item() == pytest.approx(0.5, rel=0.03)
    assert torch.equal(step(3), step(3))
    assert not torch.equal(step(0), step(0))


def test_centered_rmsprop_needs_the_mean() -> None:
    held = tensors(start({**RMS, **RATE}, 0))
    del held["MeanGrad"]
    attrs = attributes("rmsprop", {"centered": True})
    with pytest.raises(ValueError, match="MeanGrad"):
        get_op("rmsprop").fn(*arguments("rmsprop", held, torch.ones(4, 3)), **attrs)


def test_gradient_of_another_shape_is_refused() -> None:
    block = static.Program().global_block()
    for name, shape in (("p", [2, 3]), ("g", [3, 2]), ("lr", [1])):
        block.create_var(name=name, shape=shape, dtype="float32", persistable=True)
    with pytest.raises(ShapeError, match=r"'p' of shape \(2, 3\).*'g' of shape \(3, 2\)"):
        block.append_op(
            type="sgd",
            inputs={"Param": "p", "Grad": "g", "LearningRate": "lr"},
            outputs={"ParamOut": "p"},
        )


def test_output_under_a_name_of_its_own_gets_shape_and_type() -> None:
    block = static.Program().global_block()
    for name, shape in (("p", [2, 3]), ("g", [2, 3]), ("lr", [1])):
        block.create_var(name=name, shape=shape, dtype="float64", persistable=True)
    out = block.create_var(name="out")
    block.append_op(
        type="sgd",
        inputs={"Param": "p", "Grad": "g", "LearningRate": "lr"},
        outputs={"ParamOut": "out"},
    )
    assert (out.shape, out.dtype) == ((2, 3), static.VarType.FP64)
