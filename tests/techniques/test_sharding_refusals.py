"""What sharding cannot act on is refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fleetx import fleet
from fleetx.comm.layout import Group
from fleetx.step.compose import choose, compose_step, compose_update
from fleetx.step.technique import Job
from fleetx.techniques.sharding_owners import Owners, choose_owners, make_buckets
from fleetx.techniques.sharding_parameters import find_blocks


def job(settings: dict[str, Any], workers: int = 2, **more: Any) -> Job:
    strategy = fleet.DistributedStrategy()
    strategy.sharding = True
    strategy.sharding_configs = settings
    for name, value in more.items():
        setattr(strategy, name, value)
    return Job(strategy=strategy, workers=workers)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stage": 4}, "sharding_configs['stage'] must be"),
        ({"mp_degree": 2}, "sharding_configs['mp_degree'] is 2"),
        ({"optimize_offload": True}, "sharding_configs['optimize_offload'] is True"),
        ({"gradient_merge_acc_step": 4}, "set strategy.gradient_merge = True"),
        ({"hybrid_dp": True}, "one copy of the model is divided between all 2 workers"),
        ({"segment_anchors": ["Block"]}, "'sharding_segment_strategy': 'segment_anchors'"),
    ],
)
def test_settings_that_cannot_act(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="sharding_configs") as caught:
        choose(job(settings))
    assert words in str(caught.value)


def test_the_degree_of_paddle_is_ignored_unless_it_is_set() -> None:
    choose(job({}, workers=3))
    choose(job({"sharding_degree": 3}, workers=3))
    choose(job({"sharding_degree": 3}, workers=1))  # nothing to divide


@pytest.mark.parametrize("name", ["dgc", "localsgd", "adaptive_localsgd", "signsgd", "powersgd"])
def test_an_exchange_between_copies_needs_copies(name: str) -> None:
    with pytest.raises(ValueError, match="which acts between copies of the model") as caught:
        choose(job({}, **{name: True}))
    assert "set smaller degrees (sharding_configs['sharding_degree']" in str(caught.value)
    assert f"or switch off {name}." in str(caught.value)


@pytest.mark.parametrize("name", ["signsgd", "powersgd"])
def test_an_exchange_of_whole_gradients_is_refused_between_copies(name: str) -> None:
    with pytest.raises(ValueError, match="its degrees divide the model") as caught:
        choose(job({"sharding_degree": 2}, workers=4, **{name: True}))
    assert "use localsgd or dgc" in str(caught.value)


@pytest.mark.parametrize(
    ("stage", "settings", "words"),
    [
        (3, {"dgc": True}, "set sharding_configs['stage'] to 2"),
        (
            3,
            {"localsgd": True, "localsgd_configs": {"average_momentum": True}},
            "localsgd_configs['average_momentum'] averages optimizer state",
        ),
        (
            2,
            {"localsgd": True, "amp": True, "amp_configs": {"dtype": "float16"}},
            "set amp_configs = {'dtype': 'bfloat16'}",
        ),
    ],
)
def test_what_cannot_act_between_copies(stage: int, settings: dict[str, Any], words: str) -> None:
    _, techniques = choose(job({"stage": stage, "sharding_degree": 2}, workers=4, **settings))
    with pytest.raises(ValueError, match="the strategy|localsgd_configs") as caught:
        compose_step(techniques)
    assert words in str(caught.value)


def test_a_search_on_copies_is_refused() -> None:
    with pytest.raises(ValueError, match="switches on auto"):
        choose(job({}, auto=True))


def test_an_optimizer_of_all_parameters_at_once_is_refused() -> None:
    _, techniques = choose(job({}))
    step = compose_step(techniques)
    optimizer = torch.optim.LBFGS(torch.nn.Linear(2, 2).parameters())
    with pytest.raises(ValueError, match="LBFGS updates all of them together"):
        compose_update(step, techniques, optimizer)


def test_owners_are_balanced_and_stay() -> None:
    assert choose_owners([8, 1, 7, 2], loads=[0, 0]) == [0, 0, 1, 1]
    owners = Owners(Group((0, 1), 0, None))
    first = {name: torch.nn.Parameter(torch.zeros(n)) for name, n in (("a", 5), ("b", 3))}
    owners.take(first)
    before = {name: owners.of(name) for name in first}
    more = {**first, "c": torch.nn.Parameter(torch.zeros(4))}
    owners.take(more)
    assert {name: owners.of(name) for name in first} == before
    assert owners.of("c") == before["b"]


def test_buckets_hold_parameters_of_one_owner_in_the_order_of_backward() -> None:
    names = [f"layer{i}" for i in range(6)]
    parameters: dict[str, torch.Tensor] = {n: torch.nn.Parameter(torch.zeros(8)) for n in names}
    parameters["frozen"] = torch.nn.Parameter(torch.zeros(8), requires_grad=False)
    owners = Owners(Group((0, 1), 0, None))
    owners.take(parameters)
    buckets = make_buckets(parameters, owners, limit_mb=64 / 2**20)
    found = [name for bucket in buckets for name in bucket.members]
    assert sorted(found) == names
    assert all(owners.of(name) == bucket.owner for bucket in buckets for name in bucket.members)
    assert all(list(b.members) == sorted(b.members, reverse=True) for b in buckets)
    assert [len(bucket.members) for bucket in buckets] == [2, 2, 1, 1]


class Pair(torch.nn.Module):
    """A module with parts, for `find_blocks`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)


def test_blocks_are_repeated_classes_or_named() -> None:
    model = torch.nn.Module()
    model.words = torch.nn.Embedding(3, 2)
    model.blocks = torch.nn.ModuleList(torch.nn.Sequential(Pair(), Pair()) for _ in range(2))
    model.last = Pair()
    assert list(find_blocks(model)) == ["blocks.0", "blocks.1", "last"]
    assert list(find_blocks(model, ["words", "blocks.0.*"])) == [
        "words",
        "blocks.0.0",
        "blocks.0.0.first",
        "blocks.0.0.second",
        "blocks.0.1",
        "blocks.0.1.first",
        "blocks.0.1.second",
    ]
    with pytest.raises(ValueError, match="segment_anchors'\\] names 'Pear'") as caught:
        find_blocks(model, ["Pear"])
    assert "Pair" in str(caught.value)
