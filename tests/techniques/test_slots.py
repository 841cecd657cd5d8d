"""Techniques that use a slot that a step does not have are refused by name, in both front ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from fleetx import fleet
from fleetx import static as fluid
from fleetx.fleet.strategy.technique_switches import TechniqueSwitches
from fleetx.step import registry
from fleetx.step.compression import CompressedSync
from fleetx.step.named_stages import NamedClip, NamedParameterSync
from fleetx.step.stages import (
    GradientSync,
    LocalGradients,
    Memory,
    ParameterSync,
    Precision,
    Stage,
)
from fleetx.step.technique import NoSettings, Order, Row, Sizes, Technique
from fleetx.techniques.signsgd import Sign

pytestmark = pytest.mark.usefixtures("fresh_fleet")


@contextmanager
def switched_on(**methods: Any) -> Iterator[Any]:
    """Register a technique `own` with these methods; give a strategy that switches it on."""
    kind = type("Own", (_Own,), methods)
    fleet.register(kind)
    try:
        strategy = fleet.DistributedStrategy()
        strategy.own = True  # type: ignore[attr-defined]
        yield strategy
    finally:
        forget("own")


def forget(name: str) -> None:
    """Undo `fleet.register`."""
    del registry._known[name]
    delattr(TechniqueSwitches, name)


class _Own(Technique[NoSettings]):
    name = "own"
    order = Order.EXCHANGE

    def rows(self, sizes: Sizes) -> list[Row]:
        return [Row(stage=Stage.GRAD_SYNC, technique=self.name)]


def setting(slot: str, value: Any) -> Callable[..., None]:
    """Return a method of a technique that sets a slot."""

    def change(self: Any, step: Any) -> None:
        setattr(step, slot, value)

    return change


def train_program(strategy: Any, optimizer: Any = None) -> None:
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [2]), 1))
        optimizer = optimizer or fluid.optimizer.SGD(0.1)
        fleet.distributed_optimizer(optimizer, strategy).minimize(loss)


def train_module(strategy: Any) -> None:
    fleet.init(is_collective=True, strategy=strategy)
    model = fleet.distributed_model(torch.nn.Linear(2, 1))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.minimize(model(torch.ones(4, 2)).mean())


@pytest.mark.parametrize("slot", ["when_named", "on_loss", "updater"])
def test_a_slot_of_modules_only_is_refused_in_a_program(slot: str) -> None:
    expected = (
        rf"^the technique own uses step\.{slot}, which the step of a program does not have: write "
        r"change_program for it, or train a module\.$"
    )
    with (
        switched_on(change=setting(slot, None)) as strategy,
        pytest.raises(TypeError, match=expected),
    ):
        train_program(strategy)


def test_reading_such_a_slot_is_refused_too() -> None:
    def change(self: Any, step: Any) -> None:
        step.when_named.append(print)

    with switched_on(change=change) as strategy:
        train_module(strategy)
        with pytest.raises(TypeError, match=r"own uses step\.when_named, which the step of a prog"):
            train_program(strategy)


@pytest.mark.parametrize("train", [train_module, train_program])
def test_a_misspelt_slot_is_refused(train: Callable[[Any], None]) -> None:
    expected = r"the technique own uses step\.grad_snyc, .*did you mean grad_sync\?"
    with (
        switched_on(change=setting("grad_snyc", LocalGradients())) as strategy,
        pytest.raises(TypeError, match=expected),
    ):
        train(strategy)


def test_an_unknown_slot_is_answered_with_those_there_are() -> None:
    expected = (
        r"the technique own uses step\.wobble, which the step of a module does not have: it has "
        r"batches, clip, grad_sync, guard, .*precision"
    )
    with (
        switched_on(change=setting("wobble", None)) as strategy,
        pytest.raises(TypeError, match=expected),
    ):
        train_module(strategy)


def test_the_update_is_not_set_but_returned() -> None:
    with (
        switched_on(change=setting("update", None)) as strategy,
        pytest.raises(TypeError, match=r"uses step\.update, .*: write change_update"),
    ):
        train_module(strategy)


def test_stages_that_a_step_has_are_accepted() -> None:
    with switched_on(change=setting("param_sync", ParameterSync())) as strategy:
        train_module(strategy)
    for stage in (CompressedSync(Sign()), LocalGradients()):
        with switched_on(change=setting("grad_sync", stage)) as strategy:
            train_module(strategy)
            train_program(strategy)


class OwnExchange(GradientSync):
    """An exchange on parameters, which no op runs."""

    during_backward = False


class Alone(NamedParameterSync):
    """Workers train alone, which fleet.synchronize_model does not know of in a program."""

    trains_alone = True

    def sync(self, parameters: Any, state: Any) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("slot", "stage"),
    [
        ("precision", Precision()),
        ("memory", Memory()),
        ("grad_sync", OwnExchange()),
        ("param_sync", type("Own", (ParameterSync,), {})()),
        ("param_sync", Alone()),
    ],
)
def test_a_stage_that_no_op_can_run_is_refused_in_a_program(slot: str, stage: Any) -> None:
    expected = rf"own put a {type(stage).__name__} into step\.{slot} of a program, .*change_program"
    with switched_on(change=setting(slot, stage)) as strategy:
        train_module(strategy)
        with pytest.raises(TypeError, match=expected):
            train_program(strategy)


@pytest.mark.parametrize("train", [train_module, train_program])
@pytest.mark.parametrize("slot", ["grad_sync", "clip", "param_sync"])
def test_two_techniques_in_one_slot_are_refused(slot: str, train: Callable[[Any], None]) -> None:
    stages = {"grad_sync": _signs, "clip": NamedClip, "param_sync": NamedParameterSync}
    first = type("First", (_Own,), {"name": "first", "change": setting(slot, stages[slot]())})
    fleet.register(first)
    try:
        with switched_on(change=setting(slot, stages[slot]()), order=Order.COLLECT) as strategy:
            strategy.first = True
            expected = rf"first and own, but both set step\.{slot}: switch off first or own\.$"
            with pytest.raises(ValueError, match=expected):
                train(strategy)
    finally:
        forget("first")


@pytest.mark.parametrize("train", [train_module, train_program])
def test_a_clip_of_ones_own_does_not_replace_gradient_clip(train: Callable[[Any], None]) -> None:
    with switched_on(change=setting("clip", print)) as strategy:
        strategy.gradient_clip, strategy.gradient_clip_configs = True, {"norm": 1.0}
        with pytest.raises(ValueError, match=r"gradient_clip and own, but both set step\.clip: "):
            train(strategy)


@pytest.mark.parametrize(
    ("name", "configs", "wrap"),
    [
        ("recompute", {"checkpoints": ["fc_0.tmp_1"]}, fluid.optimizer.RecomputeOptimizer),
        ("amp", {"dtype": "bfloat16"}, fluid.mixed_precision.decorate),
    ],
)
def test_a_stage_of_the_scripts_optimizer_is_not_replaced(
    name: str, configs: dict[str, Any], wrap: Callable[[Any], Any]
) -> None:
    strategy = fleet.DistributedStrategy()
    setattr(strategy, name, True)
    setattr(strategy, f"{name}_configs", configs)
    optimizer = fluid.optimizer.GradientMergeOptimizer(wrap(fluid.optimizer.SGD(0.1)))
    with pytest.raises(ValueError, match=f"switches on {name}, but the optimizer is a .* one of"):
        train_program(strategy, optimizer)


def test_a_technique_may_wrap_the_stage_of_another() -> None:
    wraps = {"wraps": frozenset({Stage.GRAD_SYNC}), "order": Order.COLLECT}
    with switched_on(change=setting("grad_sync", OwnExchange()), **wraps) as strategy:
        fleet.register(type("First", (_Own,), {"name": "first", "change": _set_signs}))
        try:
            strategy.first = True
            train_module(strategy)
        finally:
            forget("first")


def _signs() -> CompressedSync:
    return CompressedSync(Sign())


def _set_signs(self: Any, step: Any) -> None:
    step.grad_sync = _signs()


def test_a_technique_for_the_other_front_end_only_is_refused() -> None:
    with switched_on(change_step=setting("grad_sync", LocalGradients())) as strategy:
        train_module(strategy)
        with pytest.raises(TypeError, match="own cannot change the step of a program: write"):
            train_program(strategy)
    with switched_on(change_program=setting("starts_equal", False)) as strategy:
        train_program(strategy)
        with pytest.raises(TypeError, match="own cannot change the step of a module: write"):
            train_module(strategy)
