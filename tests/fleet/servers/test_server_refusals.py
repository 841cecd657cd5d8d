"""Techniques, optimizers and models that a job with servers refuses, and what it explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from programs import fresh, network, optimizer
from technique_cases import CLIPPED, MERGED, Case, train
from torch import nn

import fleetx
from fleetx import fleet, static
from fleetx.fleet.collective.distributed_optimizer import DistributedOptimizer
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.techniques.served_tables import make_tables

pytestmark = pytest.mark.usefixtures("fresh_fleet", "fresh_graph")


@pytest.fixture
def session():
    fresh()
    made = fleet.UserDefinedRoleMaker(0, fleet.Role.WORKER, 2, ["127.0.0.1:1", "127.0.0.1:2"])
    fleet.init(made)
    yield fleet
    fleet.init()


def asked(**settings: Any) -> Any:
    return Case(train, {"a_sync": False, **settings}).strategy()


@pytest.mark.parametrize("name", ["localsgd", "adaptive_localsgd", "dgc", "signsgd", "powersgd"])
def test_techniques_that_exchange_otherwise_are_refused(session, name):
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="both replace the step's grad_sync") as caught:
        fleet.distributed_optimizer(optimizer, asked(**{name: True}))
    text = str(caught.value)
    assert text.startswith(f"the strategy switches on {name} and the job has parameter servers")
    assert text.endswith(f": switch off {name}, or train without servers by "
                         "fleet.init(is_collective=True).")  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"fp16_allreduce": True}, "sent to servers instead of being summed by an all-reduce"),
        ({**CLIPPED, "a_sync": True}, "there is none in async training with parameter servers"),
        (
            {"gradient_clip": True, "gradient_clip_configs": {"norm": 1.0, "norm_type": 1.0}},
            "parameter servers clip by the Euclidean norm",
        ),
        *(
            ({name: True}, f"switches on {name}.* those hold and update them: switch off {name}")
            for name in ("sharding", "tensor_parallel", "pipeline")
        ),
    ],
)
def test_what_servers_cannot_keep_is_refused(session, settings, reason):
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    with pytest.raises(ValueError, match=reason):
        fleet.distributed_optimizer(optimizer, asked(**settings))


def test_what_a_program_with_servers_cannot_do_is_refused(session):
    loss, _ = network()
    before = len(loss.block.program.global_block().ops)
    with pytest.raises(ValueError, match="switch off localsgd, or train without servers"):
        fleet.distributed_optimizer(optimizer("sgd"), asked(localsgd=True)).minimize(loss)
    assert len(loss.block.program.global_block().ops) == before


def test_several_groups_that_are_clipped_by_their_global_norm_are_refused(session):
    loss, _ = network()
    parameters = loss.block.program.global_block().vars
    for name, limit in (("w0", 1.0), ("w1", 2.0)):
        clip = static.clip.GradientClipByGlobalNorm(limit, group_name=name)
        parameters[name].gradient_clip_attr = clip
    with pytest.raises(ValueError, match=r"\(clip_norm 1\.0, 2\.0\): use one clip for all"):
        fleet.distributed_optimizer(optimizer("sgd"), asked()).minimize(loss)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: static.mixed_precision.decorate(inner, dtype="float16"),
        static.optimizer.GradientMergeOptimizer,
        lambda inner: static.optimizer.RecomputeOptimizer(
            static.optimizer.LookaheadOptimizer(inner)
        ),
    ],
)
def test_an_optimizer_that_acts_around_the_update_is_refused(session, wrap):
    loss, _ = network()
    made = wrap(optimizer("sgd"))
    with pytest.raises(
        ValueError, match=r"the optimizer is a .*, but the update runs on parameter"
    ):
        fleet.distributed_optimizer(made, asked()).minimize(loss)


def test_explain_of_a_program_with_servers(session, capsys):
    loss, _ = network("is_sparse")
    wanted = asked(amp=True, amp_configs={"dtype": "bfloat16"}, **CLIPPED)
    fleet.distributed_optimizer(optimizer("adagrad"), wanted).minimize(loss)
    found = fleet.explain()
    assert [(str(row.stage), row.technique) for row in found.rows] == [
        ("precision", "amp"),
        ("memory", "keep activations"),
        ("grad_sync", "parameter_server"),
        ("update", "the script's optimizer"),
        ("update", "gradient_clip"),
        ("update", "parameter_server"),
        ("param_sync", "parameter_server"),
    ]
    block = fleet.main_program.global_block()
    dense = [p for p in block.all_parameters() if p.name != "table"]
    assert found.bytes_sent == sum(8 * np.prod(p.shape) for p in dense)
    assert "of 1 table(s)" in found.rows[2].settings
    assert "parameter servers (sync)" in capsys.readouterr().err
    types = [op.type for op in block.ops]
    assert types[-5:] == ["send", "send", "send_barrier", "recv", "fetch_barrier"]


def test_a_second_model_is_refused(session):
    wanted = asked()
    fleet.distributed_optimizer(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1), wanted)
    with pytest.raises(ValueError, match="has one optimizer"):
        fleet.distributed_optimizer(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1))


@pytest.mark.parametrize("model_first", [True, False])
@pytest.mark.parametrize(
    ("settings", "follows"),
    [
        ({}, True),
        ({"recompute": True, "recompute_configs": {"checkpoints": ["1"]}}, True),
        ({"amp": True, "amp_configs": {"dtype": "bfloat16"}}, True),
        ({"amp": True, "amp_configs": {"dtype": "float16"}}, False),
        (MERGED, False),
        (CLIPPED, False),
        ({"lars": True}, False),
    ],
    ids=str,
)
def test_rows_alone_follow_the_update_or_it_is_refused(settings, follows, model_first):
    """A script for servers that runs in one process keeps rows in tables of its own."""
    model = nn.Sequential(fleetx.SparseEmbedding("rows", 3, optimizer="sgd"), nn.Linear(3, 1))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    fleet.init(is_collective=True, strategy=asked(**settings))

    def make() -> DistributedOptimizer:
        if model_first:
            fleet.distributed_model(model)
            return fleet.distributed_optimizer(sgd)
        made = fleet.distributed_optimizer(sgd)
        fleet.distributed_model(model)
        return made

    if not follows:
        (name, *_) = settings
        sentence = f"switches on {name}, .* the SparseEmbedding 'rows' follow only .*--server_num"
        with pytest.raises(ValueError, match=sentence):
            make()
        return
    made = make()
    before = model[0](torch.tensor([5])).detach().clone()
    model(torch.tensor([5])).sum().backward()
    made.step()
    assert not torch.equal(model[0](torch.tensor([5])), before)


def served_model(eviction: fleetx.EvictionSpec, **mode: Any) -> None:
    """Make the tables of a model with an embedding on servers."""
    model = nn.Sequential(fleetx.SparseEmbedding("user", 3, eviction=eviction), nn.Linear(3, 1))
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    make_tables(model, update, ServerMode(**mode), 2, None)


@pytest.mark.parametrize("kind", ["sync", "async", "half_async", "geo"])
def test_an_eviction_that_never_acts_is_refused_before_training(kind):
    with pytest.raises(ValueError, match="'user' has max_unseen=30, .*: set every, "):
        served_model(fleetx.EvictionSpec(max_unseen=30), kind=kind)


def test_regular_eviction_is_refused_where_workers_keep_rows():
    eviction = fleetx.EvictionSpec(max_unseen=30, every=100)
    for kind in ("sync", "async", "half_async"):
        served_model(eviction, kind=kind)
    with pytest.raises(ValueError, match="'user' has every=100, but geo training .*: use sync"):
        served_model(eviction, kind="geo")


def test_rows_of_this_process_may_be_searched_by_the_script():
    fleet.init()
    embedding = fleetx.SparseEmbedding("user", 3, eviction=fleetx.EvictionSpec(max_unseen=0))
    model = fleet.distributed_model(nn.Sequential(embedding, nn.Linear(3, 1)))
    update = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.tensor([4, 5])).sum().backward()
    update.step()
    table = embedding.local_table
    assert table is not None
    assert len(table) == 2
    assert table.evict(clock=1) == 2


def test_rows_of_this_process_are_searched_after_every_so_many_steps():
    fleet.init()
    eviction = fleetx.EvictionSpec(max_unseen=0, every=2)
    embedding = fleetx.SparseEmbedding("user", 3, eviction=eviction)
    model = fleet.distributed_model(nn.Sequential(embedding, nn.Linear(3, 1)))
    update = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    sizes = []
    for ids in ([1, 2, 3], [3], [3], [3]):
        update.zero_grad()
        model(torch.tensor(ids)).sum().backward()
        update.step()
        assert embedding.local_table is not None
        sizes.append(len(embedding.local_table))
    assert sizes == [3, 3, 3, 1]
