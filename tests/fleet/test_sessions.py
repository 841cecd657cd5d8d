"""A session that is initialised again keeps no state of the previous one."""

from __future__ import annotations

import pytest
import torch

from fleetx import comm, fleet, static
from fleetx.fleet.session import Fleet
from fleetx.monitor import run

pytestmark = pytest.mark.usefixtures("fresh_fleet")


def build_program(session: Fleet) -> None:
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        loss = static.layers.mean(static.layers.fc(static.data("x", [None, 2]), 1))
        session.distributed_optimizer(static.optimizer.SGD(0.1)).minimize(loss)


def build_model(session: Fleet) -> None:
    model = session.distributed_model(torch.nn.Linear(2, 1))
    session.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("build", [build_program, build_model])
def test_init_forgets_what_was_trained(build) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 2}
    session = Fleet().init(is_collective=True, strategy=strategy)
    build(session)
    assert "gradient_merge" in str(session.explain())
    session.init(is_collective=True)
    with pytest.raises(RuntimeError, match="there is no step to explain yet"):
        session.explain()
    with pytest.raises(RuntimeError, match=r"call fleet.distributed_optimizer\(optimizer\) first"):
        session.step()
    assert session.main_program is None
    assert session._get_applied_meta_list() == session._get_applied_graph_list() == []
    assert not session._final_strategy().gradient_merge
    build(session)
    assert "gradient_merge" not in str(session.explain())


@pytest.mark.parametrize("build", [build_program, build_model])
def test_all_state_is_that_of_a_new_session(build) -> None:
    session, new = Fleet().init(is_collective=True), Fleet()
    build(session)
    assert run._described
    session._begin()
    assert {name: type(value) for name, value in vars(session).items()} == {
        name: type(value) for name, value in vars(new).items()
    }
    session.init(is_collective=True)
    assert not run._described


def test_an_init_that_is_refused_leaves_no_session() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.asp = True
    session = Fleet().init(is_collective=True)
    build_model(session)
    with pytest.raises(ValueError, match="switches on asp"):
        session.init(is_collective=True, strategy=strategy)
    with pytest.raises(RuntimeError, match="there is no step to explain yet"):
        session.explain()


def test_a_meeting_of_the_session_before_is_not_held() -> None:
    """Workers that a script names meet later; a session of one worker must not wait for them."""
    session = Fleet()
    session.init(fleet.UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:1", "127.0.0.1:2"]))
    assert comm.world_size() == 2
    session.init()
    assert comm.world_size() == 1
    session.distributed_model(torch.nn.Linear(1, 1))


def test_a_fleet_of_paddle_1_begins_anew() -> None:
    fluid = pytest.importorskip("paddle.fluid")
    from paddle.fluid.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
    from paddle.fluid.incubate.fleet.collective import DistributedStrategy
    from paddle.fluid.incubate.fleet.collective import fleet as session

    session.init(UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:1"]))
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [3]), 1))
        optimizer = fluid.optimizer.SGD(0.1)
        session.distributed_optimizer(optimizer, DistributedStrategy()).minimize(loss)
    assert session.main_program is not None
    session.init(UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:1"]))
    assert session.main_program is None
