"""Programs trained with optimizers: against torch's own, with decay, clipping and schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small_networks as nets
import torch

from fleetx import static
from fleetx.static import clip, layers, optimizer
from fleetx.static.lowering.weight_decay import fold_weight_decay
from fleetx.static.optimizer import optimizers_of_2x
from fleetx.static.regularizer import L1Decay, L2Decay

PARAMETERS = ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]


def train(make: Any, steps: int = 5, fetch_gradient: bool = False) -> tuple[dict[str, Any], Any]:
    """Train the small classifier; return parameters before and after."""
    *_, loss = nets.mlp()
    make().minimize(loss)
    exe = nets.started()
    before = {n: nets.value(n) for n in PARAMETERS}
    fetches = [loss, "fc_0.w_0@GRAD"] if fetch_gradient else [loss]
    for step in range(steps):
        exe.run(feed=nets.batch(seed=step), fetch_list=fetches)
    return before, {n: nets.value(n) for n in PARAMETERS}


def torch_train(before: dict[str, Any], make: Any, steps: int = 5, hook: Any = None) -> Any:
    """Train the same network with a torch optimizer."""
    params = {n: torch.nn.Parameter(torch.tensor(v)) for n, v in before.items()}
    made = make(list(params.values()))
    for step in range(steps):
        feed = nets.batch(seed=step)
        x, y = torch.tensor(feed["x"]), torch.tensor(feed["y"]).reshape(-1)
        hidden = torch.tanh(x @ params["fc_0.w_0"] + params["fc_0.b_0"])
        logits = hidden @ params["fc_1.w_0"] + params["fc_1.b_0"]
        made.zero_grad()
        torch.nn.functional.cross_entropy(logits, y).backward()
        if hook is not None:
            hook(params)
        made.step()
    return {n: p.detach().numpy() for n, p in params.items()}


def assert_close(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name in PARAMETERS:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("make", "reference"),
    [
        (lambda: optimizer.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (
            lambda: optimizer.SGD(0.1, regularization=L2Decay(0.05)),
            lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.05),
        ),
        (
            lambda: optimizer.Momentum(0.1, 0.9, regularization=L2Decay(0.05)),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05),
        ),
        (
            lambda: optimizers_of_2x.Momentum(0.1, 0.9, use_nesterov=True, weight_decay=0.05),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05, nesterov=True),
        ),
        (lambda: optimizers_of_2x.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
        (
            lambda: optimizers_of_2x.Adam(0.01, epsilon=0.01, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, 0.01, eps=0.01, weight_decay=0.1),
        ),
        (
            lambda: optimizers_of_2x.AdamW(0.01, weight_decay=0.1),
            lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
        ),
        (
            lambda: optimizer.Adagrad(0.1, regularization=L2Decay(0.05), epsilon=1e-3),
            lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.05, eps=1e-3),
        ),
        (lambda: optimizer.Adamax(0.01), lambda p: torch.optim.Adamax(p, 0.01)),
    ],
)
@pytest.mark.parametrize("fetch_gradient", [False, True])
def test_trains_like_torch(make: Any, reference: Any, fetch_gradient: bool) -> None:
    before, after = train(make, fetch_gradient=fetch_gradient)
    assert_close(after, torch_train(before, reference))


def test_l1_decay_adds_the_sign() -> None:
    before, after = train(lambda: optimizer.SGD(0.1, regularization=L1Decay(0.05)))

    def hook(params: Any) -> None:
        for param in params.values():
            param.grad += 0.05 * param.detach().sign()

    assert_close(after, torch_train(before, lambda p: torch.optim.SGD(p, 0.1), hook=hook))


def test_clip_by_global_norm_and_decay() -> None:
    def make() -> Any:
        by_norm = clip.GradientClipByGlobalNorm(0.2)
        return optimizer.SGD(0.5, grad_clip=by_norm, regularization=L2Decay(0.05))

    before, after = train(make)

    def hook(params: Any) -> None:
        torch.nn.utils.clip_grad_norm_(list(params.values()), 0.2, foreach=False)

    reference = torch_train(before, lambda p: torch.optim.SGD(p, 0.5, weight_decay=0.05), hook=hook)
    for name in PARAMETERS:  # torch adds 1e-6 to the norm
        np.testing.assert_allclose(after[name], reference[name], rtol=1e-4, atol=1e-5)


def test_variables_schedule_the_rate() -> None:
    *_, loss = nets.mlp()
    rate = layers.piecewise_decay([2], [0.1, 0.0])
    optimizer.SGD(rate).minimize(loss)
    exe = nets.started()
    weights = []
    for _ in range(4):
        exe.run(feed=nets.batch(), fetch_list=[loss])
        weights.append(nets.value("fc_0.w_0"))
    assert not np.array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[2], weights[3])


def test_decay_is_folded_unless_the_gradient_is_looked_at() -> None:
    *_, loss = nets.mlp()
    ops, pairs = optimizer.Momentum(0.1, 0.9, regularization=L2Decay(0.05)).minimize(loss)
    block = static.default_main_program().global_block()
    first = next(i for i, op in enumerate(block.ops) if op.type == "scale")
    updates = block.ops[first:]
    assert [op.type for op in updates] == ["scale", "sum"] * 4 + ["momentum"] * 4
    folded = fold_weight_decay(updates, keep=set())
    assert [op.type for op in folded] == ["momentum"] * 4
    assert {op.attr("regularization_coeff") for op in folded} == {0.05}
    assert not any(op.has_attr("regularization_coeff") for op in ops)  # the program stays
    kept = fold_weight_decay(updates, keep={pairs[0][1].name})
    assert [op.type for op in kept] == ["scale", "sum"] + ["momentum"] * 4


def test_decay_of_another_variable_is_not_folded() -> None:
    block = static.default_main_program().global_block()
    for name in ("p", "q", "g", "d"):
        block.create_var(name=name, shape=[2], dtype="float32", persistable=name in "pq")
    block.create_var(name="lr", shape=[1], dtype="float32", persistable=True)
    block.append_op(type="scale", inputs={"X": "q"}, outputs={"Out": "d"}, attrs={"scale": 0.5})
    block.append_op(type="sum", inputs={"X": ["g", "d"]}, outputs={"Out": "g"})
    block.append_op(
        type="sgd",
        inputs={"Param": "p", "Grad": "g", "LearningRate": "lr"},
        outputs={"ParamOut": "p"},
    )
    assert fold_weight_decay(block.ops, keep=set()) == block.ops


def test_output_of_an_update_under_another_name_leaves_the_parameter() -> None:
    block = static.default_main_program().global_block()
    for name in ("p", "g", "lr", "new"):
        block.create_var(
            name=name, shape=[1], dtype="float32", persistable=name != "g", is_data=name == "g"
        )
    block.append_op(
        type="sgd",
        inputs={"Param": "p", "Grad": "g", "LearningRate": "lr"},
        outputs={"ParamOut": "new"},
    )
    for name, start in (("p", 2.0), ("lr", 0.5)):
        static.global_scope().var(name).get_tensor().set(np.array([start], dtype=np.float32))
    exe = static.Executor(static.CPUPlace())
    exe.run(feed={"g": np.ones(1, dtype=np.float32)}, fetch_list=["new"])
    assert (nets.value("p").item(), nets.value("new").item()) == (2.0, 1.5)
