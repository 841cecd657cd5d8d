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
from fleetx.step.stages import GradientSync, LocalGradients, ParameterSync, Stage
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


def train_program(strategy: Any) -> None:
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [2]), 1))
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)


def train_module(strategy: Any) -> None:
    fleet.init(is_collective=True, strategy=strategy)
    model = fleet.distributed_model(torch.nn.Linear(2, 1))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.minimize(model(torch.ones(4, 2)).mean())


@pytest.mark.parametrize(
    "slot", ["precision", "memory", "param_sync", "clip", "guard", "when_named", "on_loss"]
)
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
        r"clip, grad_sync, guard, .*precision"
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
    with switched_on(change=setting("grad_sync", CompressedSync(Sign()))) as strategy:
        train_module(strategy)
        train_program(strategy)


def test_an_exchange_that_no_op_can_run_is_refused_in_a_program() -> None:
    with switched_on(change=setting("grad_sync", LocalGradients())) as strategy:
        train_module(strategy)
        with pytest.raises(TypeError, match=r"own put a LocalGradients into .*change_program"):
            train_program(strategy)


def test_an_exchange_wrapped_around_another_technique_is_refused_in_a_program() -> None:
    class Around(GradientSync):
        during_backward = False

    def change(self: Any, step: Any) -> None:
        step.grad_sync = Around()

    first = type("First", (_Own,), {"name": "first", "change": setting("grad_sync", _signs())})
    fleet.register(first)
    try:
        with switched_on(change=change, order=Order.COLLECT) as strategy:
            strategy.first = True
            with pytest.raises(
                TypeError,
                match=r"own changes step\.grad_sync, which first has set, .*change_program",
            ):
                train_program(strategy)
    finally:
        forget("first")


def _signs() -> CompressedSync:
    return CompressedSync(Sign())


def test_a_technique_for_the_other_front_end_only_is_refused() -> None:
    with switched_on(change_step=setting("grad_sync", LocalGradients())) as strategy:
        train_module(strategy)
        with pytest.raises(TypeError, match="own cannot change the step of a program: write"):
            train_program(strategy)
    with switched_on(change_program=setting("exchange", None)) as strategy:
        train_program(strategy)
        with pytest.raises(TypeError, match="own cannot change the step of a module: write"):
            train_module(strategy)
