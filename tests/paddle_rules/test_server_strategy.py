"""The strategies of Paddle 1.x for server jobs: defaults, setters, and their modes."""

import pytest

from fleetx.paddle_rules.server_config import (
    DistributedMode,
    DistributeTranspilerConfig,
    HashName,
    PSDispatcher,
    RoundRobin,
    ServerRuntimeConfig,
    TrainerRuntimeConfig,
)
from fleetx.paddle_rules.server_strategy import ServerStrategy, StrategyFactory, strategy_of
from fleetx.techniques.parameter_server import server_mode

MAKERS = {
    "sync": StrategyFactory.create_sync_strategy,
    "async": StrategyFactory.create_async_strategy,
    "half_async": StrategyFactory.create_half_async_strategy,
    "geo": StrategyFactory.create_geo_strategy,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_each_strategy_is_a_mode(kind):
    strategy = MAKERS[kind]()
    strategy.set_program_config({"min_block_size": 9000, "split_method": HashName})
    mode = server_mode(strategy)
    assert (mode.kind, mode.min_block_size, mode.split_method) == (kind, 9000, "HashName")
    assert server_mode(strategy) == mode  # asking changes nothing


def test_settings_reach_the_mode(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    strategy = StrategyFactory.create_async_strategy()
    strategy.set_trainer_runtime_config(
        {"communicator_send_queue_size": 50, "communicator_independent_recv_thread": "0"}
    )
    settings = server_mode(strategy).settings
    assert (settings.max_merge_var_num, settings.send_queue_size) == (2, 50)
    assert settings.independent_recv_thread is False
    assert server_mode(StrategyFactory.create_geo_strategy(7)).k_steps == 7
    assert server_mode(StrategyFactory.create_half_async_strategy()).threads == 2
    strategy.set_trainer_runtime_config({"communicator_send_queue_size": "many"})
    with pytest.raises(ValueError, match="communicator_send_queue_size'] must be a whole number"):
        server_mode(strategy)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "sync"),
        ({"sync_mode": False, "runtime_split_send_recv": True}, "async"),
        ({"sync_mode": False}, "half_async"),
        (
            {"sync_mode": False, "runtime_split_send_recv": True, "half_async": True},
            "half_async",
        ),
        (
            {"sync_mode": False, "runtime_split_send_recv": True, "geo_sgd_mode": True},
            "geo",
        ),
    ],
)
def test_a_config_stands_for_a_strategy(settings, kind):
    config = DistributeTranspilerConfig()
    for name, value in settings.items():
        setattr(config, name, value)
    config.geo_sgd_need_push_nums = 5
    for _ in range(2):  # what a strategy settles must not change the script's object
        assert strategy_of(config).server_mode().kind == kind
    assert strategy_of(config).server_mode().k_steps == 5


def test_what_excludes_each_other():
    config = DistributeTranspilerConfig()
    with pytest.raises(ValueError, match="set config.sync_mode to False first"):
        config.runtime_split_send_recv = True
    config.sync_mode = False
    config.runtime_split_send_recv = True
    with pytest.raises(ValueError, match="sync_mode=True excludes runtime_split_send_recv"):
        config.sync_mode = True
    for name in ("sync_mode", "runtime_split_send_recv"):
        with pytest.raises(ValueError, match="must be True or False, not None"):
            setattr(config, name, None)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("mode", "nccl2", ValueError),
        ("enable_dc_asgd", True, ValueError),
        ("min_block_size", 100, AssertionError),
        ("split_method", object, AssertionError),
        ("split_method", type("Mine", (PSDispatcher,), {}), ValueError),
    ],
)
def test_what_a_server_job_cannot_follow(name, value, error):
    config = DistributeTranspilerConfig()
    setattr(config, name, value)
    with pytest.raises(error, match=name):
        strategy_of(config).server_mode()


@pytest.mark.parametrize(
    ("part", "given"),
    [
        ("program_config", DistributeTranspilerConfig()),
        ("trainer_runtime_config", TrainerRuntimeConfig()),
        ("server_runtime_config", ServerRuntimeConfig()),
    ],
)
def test_parts_are_objects_or_dicts(part, given):
    strategy = StrategyFactory.create_async_strategy()
    getattr(strategy, f"set_{part}")(given)
    assert getattr(strategy, f"get_{part}")() is given
    with pytest.raises(ValueError, match="has no setting 'unknown'"):
        getattr(strategy, f"set_{part}")({"unknown": 1})
    with pytest.raises(TypeError, match=f"{part} takes a dict or"):
        getattr(strategy, f"set_{part}")(3)
    with pytest.raises(NotImplementedError, match="create strategies with StrategyFactory"):
        getattr(ServerStrategy(), f"set_{part}")({})
    with pytest.raises(TypeError, match="config must be an instance of"):
        strategy_of({})


def test_table_of_a_worker(monkeypatch, capsys):
    monkeypatch.setenv("FLAGS_communicator_send_queue_size", "9")
    config = TrainerRuntimeConfig()
    assert config.get_communicator_flags()["communicator_send_queue_size"] == "9"
    config.mode = DistributedMode.SYNC
    lines = repr(config).splitlines()
    assert lines[0] == ""
    assert lines[1] == lines[-1] == "=" * 50
    assert lines[2] == "TrainerRuntimeConfig Overview".center(45) + "Value"
    assert "communicator_send_queue_size".ljust(45) + "1    " in lines
    assert "communicator_send_queue_size = 9 is set to CPU_NUM = 1" in capsys.readouterr().out
    config.mode = 9
    with pytest.raises(ValueError, match="mode 9 is unknown"):
        repr(config)


def test_dispatchers():
    class Var:
        def __init__(self, name):
            self.name = name

    turn = RoundRobin(["a", "b"])
    assert turn.dispatch([1, 2, 3]) == ["a", "b", "a"]
    assert turn.dispatch([4]) == ["b"]
    turn.reset()
    assert turn.dispatch([5]) == ["a"]
    by_name = HashName(["a", "b"])
    found = by_name.dispatch([Var(f"w_{i}") for i in range(20)])
    assert set(found) == {"a", "b"}
    assert by_name.dispatch([Var("w_0")]) == found[:1]
    with pytest.raises(NotImplementedError, match="use RoundRobin or HashName"):
        PSDispatcher(["a"]).dispatch([])
