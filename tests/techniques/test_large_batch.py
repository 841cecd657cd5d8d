"""gradient_merge, lars, lamb: formulas in NumPy; two workers against one with the whole batch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from running import run
from torch import nn

from fleetx import static
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.kernels import compiled, layerwise
from fleetx.static import layers
from fleetx.static.errors import ArgumentError
from fleetx.static.optimizer import optimizers_of_2x
from fleetx.step.compose import choose, compose_step, compose_update
from fleetx.step.technique import Job, Sizes
from fleetx.techniques.lamb import Lamb
from fleetx.techniques.lars import Lars

RATES = [0.125] * 6 + [0.0625] * 6
BETAS = (0.875, 0.9375)
LARS: dict[str, Any] = {
    "lars_coeff": 0.5,
    "lars_weight_decay": 0.125,
    "exclude_from_weight_decay": ["b"],
}
LAMB: dict[str, Any] = {"lamb_weight_decay": 0.125, "exclude_from_weight_decay": ["1", "b2"]}
MERGED = [
    "merge sgd", "merge momentum", "merge adam", "merge sum", "merge hierarchical", "merge lars",
    "merge lamb",
]  # fmt: skip
FRONT_ENDS = ("eager", "static")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both workers wrote, of all cases."""
    return run("large_batch.py", tmp_path_factory.mktemp("large_batch"))


# -- the formulas ----------------------------------------------------------------------------------
def lars_by_hand(p: Any, g: Any, v: Any, lr: float, decay: float) -> None:
    p_norm, g_norm = np.linalg.norm(p), np.linalg.norm(g)
    rate = lr
    if decay > 0 and p_norm > 0 and g_norm > 0:
        rate = lr * 0.02 * p_norm / (g_norm + decay * p_norm + 0.01)
    v *= 0.9
    v += rate * (g + decay * p)
    p -= v


def lamb_by_hand(p: Any, g: Any, m: Any, v: Any, lr: float, decay: float, t: int) -> None:
    m *= 0.9
    m += 0.1 * g
    v *= 0.99
    v += 0.01 * g * g
    r = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-3) + decay * p
    p_norm, r_norm = np.linalg.norm(p), np.linalg.norm(r)
    p -= lr * (p_norm / r_norm if p_norm > 0 and r_norm > 0 else 1.0) * r


SHAPES = {"conv.weight": (8, 3, 3, 3), "conv.bias": (8,), "bn.weight": (8,), "zero": (5, 4)}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
@pytest.mark.parametrize("kind", ["lars", "lamb"])
def test_twenty_steps_follow_the_formula(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    data = np.random.default_rng(0)
    arrays = {n: data.standard_normal(s) for n, s in SHAPES.items()}
    arrays["zero"][:] = 0
    tensors = {n: nn.Parameter(torch.tensor(a, dtype=dtype)) for n, a in arrays.items()}
    tensors["conv.weight"].data = tensors["conv.weight"].data.to(memory_format=torch.channels_last)
    tensors["unused"] = nn.Parameter(torch.zeros(3, dtype=dtype))
    optimizer: torch.optim.Optimizer
    if kind == "lars":
        optimizer = Lars(
            tensors.items(), lars_coeff=0.02, lars_weight_decay=0.1, epsilon=0.01,
            exclude_from_weight_decay=["bn", "bias"], weight_decay=0.05,
        )  # fmt: skip
    else:
        optimizer = Lamb(
            tensors.items(), betas=(0.9, 0.99), eps=1e-3, lamb_weight_decay=0.1,
            exclude_from_weight_decay=["bn.weight", "bias"], weight_decay=0.05,
        )  # fmt: skip
    states = {n: [np.zeros_like(a), np.zeros_like(a)] for n, a in arrays.items()}
    for t in range(1, 21):
        lr = 0.1 / t
        optimizer.param_groups[0]["lr"] = lr
        for name, p in arrays.items():
            g = data.standard_normal(p.shape) * (0 if name == "zero" and t < 3 else 1)
            tensors[name].grad = torch.tensor(g, dtype=dtype)
            decay = 0.0 if name in ("conv.bias", "bn.weight") else 0.1
            g = g + 0.05 * p
            if kind == "lars":
                lars_by_hand(p, g, states[name][0], lr, decay)
            else:
                lamb_by_hand(p, g, *states[name], lr, decay, t)
        optimizer.step()
    for name, p in arrays.items():
        actual = tensors[name].detach().numpy()
        np.testing.assert_allclose(actual, p, rtol=tolerance, atol=tolerance, err_msg=name)
    assert not tensors["unused"].detach().any()


@pytest.mark.parametrize("kind", [Lars, Lamb])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_updates_equal_those_in_double_precision(
    kind: Any, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled updates with some threads, and with 0 what runs in their place."""
    if threads == 0:
        monkeypatch.setattr(layerwise, "_layerwise", None)
    elif reason := compiled.why_missing("fleetx.kernels._layerwise"):
        pytest.skip(f"needs fleetx.kernels._layerwise: {reason}")
    # Around the sizes at which they do something else: single lines, places, threads.
    shapes = [(1,), (15,), (17,), (129,), (65535,), (65537,), (300, 1000), (8, 3, 5, 5), (0,)]

    def trained(dtype: torch.dtype) -> list[torch.Tensor]:
        data = torch.Generator().manual_seed(1)
        parameters = [
            nn.Parameter(torch.randn(shape, generator=data).to(dtype)) for shape in shapes
        ]
        parameters[7].data = parameters[7].data.to(memory_format=torch.channels_last)
        optimizer = kind(parameters, lr=0.1)
        for _ in range(3):
            for p in parameters:
                grad = torch.randn(p.shape, generator=data).to(dtype)
                p.grad = torch.empty_like(p).copy_(grad)
            optimizer.step()
        return [p.detach() for p in parameters]

    count = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads or count)
    found = trained(torch.float32)
    monkeypatch.undo()
    assert torch.get_num_threads() == count
    for actual, wanted in zip(found, trained(torch.float64), strict=True):
        torch.testing.assert_close(actual.double(), wanted, rtol=2e-5, atol=2e-5)


def test_autograd_sees_that_parameters_have_changed() -> None:
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    loss = (weight * weight).sum()
    Lars([weight], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_names_are_needed_for_what_is_excluded() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = Lars([parameter], exclude_from_weight_decay=["bias"])
    with pytest.raises(ValueError, match="named_parameters"):
        optimizer.step()


def test_a_scheduler_of_the_replaced_optimizer_acts(recwarn: pytest.WarningsRecorder) -> None:
    weight = nn.Parameter(torch.ones(3))
    inner = torch.optim.SGD([weight], lr=1.0, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    optimizer = Lars((), inner=inner, exclude_from_weight_decay=["weight"])
    optimizer.take_names({"weight": weight})
    for rate in (1.0, 0.5, 0.25):
        assert optimizer.param_groups[0]["lr"] == rate
        weight.grad = torch.ones(3)
        optimizer.step()
        schedule.step()
        optimizer.load_state_dict(optimizer.state_dict())
    assert not recwarn.list
    copied = copy.deepcopy(optimizer)
    (other,) = copied.param_groups[0]["params"]
    other.grad = torch.ones(3)
    copied.step()
    assert other.tolist() != weight.tolist()


# -- two workers -----------------------------------------------------------------------------------
class Net(nn.Module):
    """The network of the workers, all of it on one."""

    def __init__(self) -> None:
        super().__init__()
        data = np.random.default_rng(2)
        for name, shape in {"w1": (6, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}.items():
            setattr(self, name, nn.Parameter(torch.tensor(data.standard_normal(shape) * 0.5)))

    def forward(self, x: Any) -> Any:
        return torch.tanh(x @ self.w1 + self.b1) @ self.w2 + self.b2


def whole_batch(case: str) -> list[np.ndarray]:
    """Return the parameters after each update of one worker that has the whole batch."""
    net, data = Net(), np.random.default_rng(1)
    makers: dict[str, Any] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=1.0),
        "sum": lambda p: torch.optim.SGD(p, lr=1.0),
        "momentum": lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9, weight_decay=0.01),
        "adam": lambda p: torch.optim.Adam(p, lr=1.0, betas=BETAS, weight_decay=0.01),
        "lars": lambda p: Lars(p, weight_decay=0.01, **LARS),
        "lamb": lambda p: Lamb(p, betas=BETAS, eps=1e-8, weight_decay=0.01, **LAMB),
    }
    kind = case.removeprefix("merge ")
    maker = makers["momentum" if kind in ("half", "hierarchical") else kind]
    named = list(net.named_parameters())
    optimizer = maker(named if kind in ("lars", "lamb") else [p for _, p in named])
    every = 3 if case.startswith("merge") else 1
    history = []
    for i in range(0, len(RATES), every):
        rows = [(data.standard_normal((8, 6)), data.integers(0, 3, (8,))) for _ in range(every)]
        x, y = (torch.tensor(np.concatenate(part)) for part in zip(*rows, strict=True))
        optimizer.param_groups[0]["lr"] = RATES[i]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        (loss * 3 if kind == "sum" else loss).backward()
        optimizer.step()
        history.append(torch.cat([p.detach().flatten() for p in net.parameters()]).numpy().copy())
    return history


@pytest.mark.parametrize("front", FRONT_ENDS)
@pytest.mark.parametrize("case", [*MERGED, "merge half", "lars", "lamb"])
def test_equals_one_worker_with_the_whole_batch(
    case: str, front: str, trained: list[dict[str, Any]]
) -> None:
    every = 3 if case.startswith("merge") else 1
    tolerance = 2e-3 if case == "merge half" else 1e-10
    expected = whole_batch(case)
    for worker in trained:
        values = worker[f"{case}, {front}"]["values"]
        for i, wanted in enumerate(expected):
            actual = values[every * i + every - 1]
            np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)
        for i in range(len(RATES)):  # in between nothing changes
            if i % every and (i + 1) % every:
                assert values[i] == values[i - 1]


@pytest.mark.parametrize("front", FRONT_ENDS)
@pytest.mark.parametrize("case", MERGED)
def test_merging_communicates_in_every_third_step_only(
    case: str, front: str, trained: list[dict[str, Any]]
) -> None:
    # Four parameters in one bucket: one message for each of four updates.
    assert all(worker[f"{case}, {front}"]["messages"] == 4 for worker in trained)


@pytest.mark.parametrize("front", FRONT_ENDS)
@pytest.mark.parametrize("case", ["merge adam", "lars", "lamb"])
def test_a_break_changes_nothing(case: str, front: str, trained: list[dict[str, Any]]) -> None:
    for worker in trained:
        name = f"{case}, {front}"
        broken = worker[f"{name}, with a break"]
        for key in ("losses", "values"):
            assert broken[key] == worker[name][key]


def test_programs_show_what_is_done(trained: list[dict[str, Any]]) -> None:
    merged = trained[0]["merge momentum, static"]
    outer, inner = merged["ops"]
    assert "c_allreduce_sum" not in outer
    assert outer[-1] == "conditional_block"
    # Divided by the number of steps before workers sum them, as in modules.
    assert inner[:8] == ["scale"] * 4 + ["c_allreduce_sum"] * 4
    assert {"momentum", "scale", "sum", "fill_constant"} <= set(inner)
    assert not any(kind.startswith("c_") for kind in merged["origin"])
    names = ["w1@GRAD@GradientMerge", "gradient_merge_k", "gradient_merge_step"]
    assert set(names) <= set(merged["names"])
    for case, op, state in (("lars", "lars_momentum", 4 + 1), ("lamb", "lamb", 16 + 1)):
        record = trained[0][f"{case}, static"]
        assert record["ops"][0].count(op) == 4
        assert record["state"] == state  # accumulators and the scheduler's


# -- programs --------------------------------------------------------------------------------------
def test_merging_keeps_the_fast_backward_and_adds_in_place() -> None:
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup), static.scope_guard(scope):
        x = layers.data("x", shape=[4])
        loss = layers.mean(layers.fc(x, 3))
        inner = static.optimizer.SGD(0.1)
        merge = static.optimizer.GradientMergeOptimizer(inner, k_steps=2)
        with pytest.raises(ArgumentError, match="parameter_list"):
            merge.minimize(loss, parameter_list=["fc_0.w_0"])
        with pytest.raises(ArgumentError, match="no_grad_set"):
            merge.minimize(loss, no_grad_set={"fc_0.w_0"})
        merge.minimize(loss)
        exe = static.Executor(static.CPUPlace())
        exe.run(startup)
        from fleetx.static.lowering.codegen import lower

        source = lower(main, ["x"], [loss.name], scope, torch.device("cpu")).source
        assert source.count("autograd_grad(") == 1
        (name,) = [v.name for v in main.list_vars() if v.name.endswith("w_0@GRAD@GradientMerge")]
        before = scope.find_var(name).value
        feed = {"x": np.ones((2, 4), "float32")}
        exe.run(main, feed=feed, fetch_list=[loss])
        assert scope.find_var(name).value.data_ptr() == before.data_ptr()
        np.testing.assert_allclose(before, np.full((4, 3), 1 / 3), rtol=1e-6)
        exe.run(main, feed=feed, fetch_list=[loss])
        assert not scope.find_var(name).value.any()
        evaluation = main.clone(for_test=True)
        assert "conditional_block" not in [op.type for op in evaluation.global_block().ops]
    with pytest.raises(ArgumentError, match="k_steps"):
        static.optimizer.GradientMergeOptimizer(inner, k_steps=0)


# -- what cannot be done ---------------------------------------------------------------------------
def chosen(**settings: Any) -> Any:
    strategy = DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    return choose(Job(strategy=strategy))[1]


def weights() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(2))]


@pytest.mark.parametrize(
    ("technique", "optimizer", "words"),
    [
        ("lars", lambda: torch.optim.Adam(weights()), "not Adam"),
        ("lars", lambda: torch.optim.SGD(weights()), "needs momentum"),
        ("lars", lambda: torch.optim.SGD(weights(), momentum=0.9, nesterov=True), "nesterov"),
        ("lars", lambda: static.optimizer.Adam(0.1), "not AdamOptimizer"),
        ("lars", lambda: static.optimizer.Momentum(0.1, 0.9, use_nesterov=True), "Nesterov"),
        ("lamb", lambda: torch.optim.SGD(weights()), "not SGD"),
        ("lamb", lambda: torch.optim.Adam(weights(), amsgrad=True), "amsgrad"),
        ("lamb", lambda: torch.optim.AdamW(weights(), weight_decay=0.1), "lamb_weight_decay"),
        ("lamb", lambda: optimizers_of_2x.AdamW(), "not AdamW"),
        ("lamb", lambda: static.optimizer.Lamb(), "not LambOptimizer"),
    ],
)
def test_wrong_optimizers_are_refused(technique: str, optimizer: Any, words: str) -> None:
    (found,) = chosen(**{technique: True})
    with pytest.raises(ValueError, match=words):
        found.check_optimizer(optimizer())


def test_merging_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="k_steps"):
        chosen(gradient_merge=True)


def test_costs() -> None:
    (merge,) = chosen(gradient_merge=True, gradient_merge_configs={"k_steps": 4})
    sizes = Sizes(shapes=((1000,), (10,)))
    assert merge.share_of_bytes() == 0.25
    assert [(row.settings, row.memory) for row in merge.rows(sizes)] == [("mean of 4 steps", 4040)]
    for name in ("lars", "lamb"):
        (technique,) = chosen(**{name: True})
        assert [row.stage for row in technique.rows(sizes)] == ["update"]


def test_sparse_and_missing_gradients_merge() -> None:
    techniques = chosen(gradient_merge=True, gradient_merge_configs={"k_steps": 3})
    step = compose_step(techniques)
    table, rest = nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1, bias=False)
    model = nn.Sequential(table, rest)
    compose_update(step, techniques, torch.optim.SGD(model.parameters(), lr=1.0))
    step.take_model(model)
    before = table.weight.detach().clone()
    for ids in ([0, 1], [1], [2]):
        table(torch.tensor(ids)).sum().backward()
        if ids == [2]:
            table.weight.grad = table.weight.grad.to_dense()
        step.run()
    change = before - table.weight.detach()
    expected = torch.tensor([1.0, 2.0, 1.0, 0.0])[:, None].expand(4, 2) / 3
    torch.testing.assert_close(change, expected)
    assert rest.weight.grad is None
