"""Degrees of parallelism: what they make of the workers, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fleetx import fleet
from fleetx.comm.layout import Degrees, Layout
from fleetx.fleet.collective.hybrid_groups import HybridGroups
from fleetx.step.compose import choose, compose_step, compose_update
from fleetx.step.degrees import degrees_of
from fleetx.step.program_step import ProgramStep
from fleetx.step.technique import Job
from fleetx.techniques.same_batch import checksum
from fleetx.techniques.tensor_parallel import TensorParallel
from fleetx.techniques.tensor_parallel_plan import divide_modules, find_plan


def strategy(**settings: Any) -> Any:
    made = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def parallel(degree: int = 2, **more: Any) -> Any:
    configs = {"tensor_parallel_degree": degree}
    return strategy(tensor_parallel=True, tensor_parallel_configs=configs, **more)


@pytest.mark.parametrize(
    ("settings", "workers", "expected"),
    [
        ({}, 4, Degrees(dp=4)),
        ({"sharding": True}, 4, Degrees(sharding=4)),
        (
            {"sharding": True, "sharding_configs": {"sharding_degree": 2}},
            4,
            Degrees(dp=2, sharding=2),
        ),
        ({"hybrid_configs": {"mp_degree": 2}}, 4, Degrees(dp=2, mp=2)),
        (
            {"hybrid_configs": {"mp_degree": 2, "sharding_degree": 2}},
            8,
            Degrees(dp=2, sharding=2, mp=2),
        ),
        (
            {"hybrid_configs": {"mp_degree": 2, "dp_degree": 1}, "sharding": True},
            8,
            Degrees(sharding=4, mp=2),
        ),
        ({"hybrid_configs": {"mp_degree": 2}}, 1, Degrees()),  # nothing to divide
    ],
)
def test_copies_take_the_workers_that_are_left(
    settings: dict[str, Any], workers: int, expected: Degrees
) -> None:
    assert degrees_of(strategy(**settings), workers) == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hybrid_configs": {"mp_degree": 3}}, "its divisors are 1, 2, 4, 8"),
        (
            {"hybrid_configs": {"mp_degree": 2, "dp_degree": 2}},
            "set hybrid_configs['dp_degree'] to 4",
        ),
        ({"sharding": True, "sharding_configs": {"sharding_degree": 5}}, "sharding_degree 5"),
        (
            {
                "sharding": True,
                "sharding_configs": {"sharding_degree": 2},
                "hybrid_configs": {"sharding_degree": 4},
            },
            "different degrees of sharding (2, 4)",
        ),
        (
            {
                "tensor_parallel": True,
                "tensor_parallel_configs": {"tensor_parallel_degree": 2},
                "hybrid_configs": {"mp_degree": 4},
            },
            "but hybrid_configs['mp_degree'] is 4: leave one of them out",
        ),
    ],
)
def test_degrees_that_do_not_fit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="degree") as caught:
        choose(Job(strategy=strategy(**settings), workers=8))
    assert words in str(caught.value)


def test_those_that_talk_most_are_neighbours() -> None:
    degrees = Degrees(dp=2, sharding=2, mp=2)
    assert degrees.place(5) == {"dp": 1, "pp": 0, "sharding": 0, "mp": 1}
    assert degrees.groups(["mp"]) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert degrees.groups(["sharding"]) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert degrees.groups(["dp"]) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert degrees.groups(["sharding", "mp"]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert degrees.groups([]) == [[rank] for rank in range(8)]


def test_workers_that_divide_layers_get_the_same_data() -> None:
    degrees = Degrees(dp=2, pp=1, sharding=2, mp=2)
    found = [HybridGroups(Layout(degrees, rank)) for rank in range(8)]
    assert [each.data_index for each in found] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {each.data_num for each in found} == {4}
    last = found[-1]
    assert (last.get_data_parallel_rank(), last.get_data_parallel_world_size()) == (1, 2)
    assert (last.get_model_parallel_rank(), last.get_model_parallel_world_size()) == (1, 2)
    assert (last.get_sharding_parallel_rank(), last.get_sharding_parallel_world_size()) == (1, 2)
    assert (last.get_stage_id(), last.get_pipe_parallel_world_size()) == (0, 1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (parallel(1), "tensor_parallel_configs['tensor_parallel_degree'] is 1"),
        (parallel(auto=True), "switches on auto"),
        (
            parallel(sharding=True, sharding_configs={"sharding_degree": 2}),
            "set sharding_configs['stage'] to 3",
        ),
        (parallel(signsgd=True), "use localsgd or dgc"),
        (parallel(4, localsgd=True), "which acts between copies of the model"),
    ],
)
def test_tensor_parallel_jobs_that_are_refused(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match="the strategy switches on") as caught:
        choose(Job(strategy=given, workers=4))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (parallel(dgc=True), "switch off one of them, or take localsgd"),
        (
            parallel(amp=True, amp_configs={"dtype": "float16"}),
            "set amp_configs = {'dtype': 'bfloat16'}",
        ),
    ],
)
def test_tensor_parallel_steps_that_are_refused(given: Any, words: str) -> None:
    _, techniques = choose(Job(strategy=given, workers=4))
    with pytest.raises(ValueError, match="the strategy switches on") as caught:
        compose_step(techniques)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_updates_of_whole_layers_are_refused(name: str) -> None:
    _, techniques = choose(Job(strategy=parallel(**{name: True}), workers=2))
    step = compose_step(techniques)
    parameters = list(nn.Linear(2, 2).parameters())
    kind = {
        "lars": torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        "lamb": torch.optim.Adam(parameters),
    }
    with pytest.raises(ValueError, match=f"switch off {name} or tensor_parallel"):
        compose_update(step, techniques, kind[name])


def test_programs_and_other_optimizers_are_refused() -> None:
    technique = TensorParallel(Job(strategy=parallel(), workers=2))
    with pytest.raises(ValueError, match="for modules but not for programs"):
        technique.change_program(ProgramStep(None))
    with pytest.raises(ValueError, match="LBFGS updates all of them together"):
        technique.check_optimizer(torch.optim.LBFGS(nn.Linear(2, 2).parameters()))


def test_a_plan_is_checked() -> None:
    model = nn.Sequential(nn.Embedding(4, 6), nn.Linear(6, 9), nn.LayerNorm(9))
    assert find_plan(model, ["0: embedding", "1:colwise"]) == {"0": "embedding", "1": "colwise"}
    for lines, words in (
        ([], "has no plan for Sequential"),
        (["1"], "is no module and its style"),
        (["1: columns"], "a style is one of colwise"),
        (["5: colwise"], "no module of this name"),
        (["2: colwise"], "is a LayerNorm, but colwise divides a nn.Linear"),
        (["1: embedding"], "embedding divides a nn.Embedding"),
    ):
        with pytest.raises(ValueError, match="plan") as caught:
            find_plan(model, lines)
        assert words in str(caught.value)


def test_plans_of_families_are_found() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 7, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    bert = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, intermediate_size=8))
    block = "bert.encoder.layer.0."
    assert find_plan(bert) == {
        f"{block}attention.self.query": "colwise",
        f"{block}attention.self.key": "colwise",
        f"{block}attention.self.value": "colwise",
        f"{block}attention.output.dense": "rowwise",
        f"{block}intermediate.dense": "colwise",
        f"{block}output.dense": "rowwise",
    }
    config = transformers.LlamaConfig(**sizes, intermediate_size=8)
    assert find_plan(transformers.LlamaForCausalLM(config))["lm_head"] == "gathered"
    config = transformers.GPT2Config(vocab_size=7, n_embd=8, n_layer=1, n_head=2)
    assert find_plan(transformers.GPT2LMHeadModel(config))["transformer.wte"] == "embedding"


def test_a_plan_may_be_a_dictionary() -> None:
    made = strategy(tensor_parallel_configs={"plan": {"up": "colwise", "down": "rowwise"}})
    assert made.tensor_parallel_configs["plan"] == ["up: colwise", "down: rowwise"]


def test_sides_that_do_not_come_out_even_are_refused() -> None:
    class Two:
        """A mesh of two workers; only its size is read before anything is divided."""

        def size(self) -> int:
            return 2

    model = nn.Sequential(nn.Linear(6, 9))
    with pytest.raises(ValueError, match="divides the 9 outputs of '0' between 2 workers"):
        divide_modules(model, {"0": "colwise"}, Two())  # type: ignore[arg-type]


def test_batches_are_told_apart() -> None:
    ids = torch.arange(6)
    assert checksum(((ids,), {"mask": [ids > 2]})) == checksum(
        ((ids.clone(),), {"mask": (ids > 2,)})
    )
    assert checksum(((ids,), {})) != checksum(((ids.flip(0),), {}))
