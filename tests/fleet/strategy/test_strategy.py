"""DistributedStrategy: defaults, checks, copies, files, tables."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from fleetx.fleet.strategy import distributed_strategy as strategy_module
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy, settings
from fleetx.fleet.strategy.prototxt import to_text
from fleetx.fleet.strategy.reference import reference, stub
from fleetx.fleet.strategy.technique_switches import ConfigsField
from fleetx.static.run.compiled_program import BuildStrategy, ExecutionStrategy
from fleetx.step.settings import Effect, Field, with_meanings


def test_defaults_are_paddles() -> None:
    strategy = DistributedStrategy()
    assert not strategy.amp
    assert strategy.a_sync
    assert strategy.fuse_grad_size_in_MB == 32
    assert strategy.amp_configs["decr_ratio"] == 0.8
    assert strategy.a_sync_configs["k_steps"] == -1
    assert strategy.localsgd_configs["k_steps"] == strategy.localsgd_configs["begin_step"] == 1


def test_configs_are_updated_key_by_key() -> None:
    strategy = DistributedStrategy()
    strategy.amp_configs = {"incr_ratio": 3}
    strategy.amp_configs["decr_ratio"] = 0.5
    strategy.amp_configs.update(incr_every_n_steps=7)
    assert strategy.amp_configs["incr_ratio"] == 3.0
    assert strategy.amp_configs["decr_ratio"] == 0.5
    assert strategy.amp_configs["incr_every_n_steps"] == 7
    assert strategy.amp_configs["init_loss_scaling"] == 32768.0


def test_lists_are_replaced_and_take_what_has_a_name() -> None:
    class Variable:
        name = "fc_0.tmp_1"

    class Block:
        pass

    strategy = DistributedStrategy()
    strategy.recompute_configs = {"checkpoints": ["a"]}
    strategy.recompute_configs = {"checkpoints": ["b", Variable(), Block]}
    assert strategy.recompute_configs["checkpoints"] == ["b", "fc_0.tmp_1", "Block"]


@pytest.mark.parametrize(
    ("name", "value", "error", "says"),
    [
        ("amp", "True", TypeError, "amp takes a bool"),
        ("nccl_comm_num", True, TypeError, "takes a int"),
        ("nccl_comm_num", 0, ValueError, "at least 1"),
        ("last_comm_group_size_MB", -1, ValueError, "greater than 0"),
        ("ampp", True, TypeError, "Did you mean 'amp'"),
        ("amp_configs", {"incr_ratios": 1}, ValueError, "Did you mean 'incr_ratio'"),
        ("amp_configs", {"incr_ratio": "much"}, TypeError, "takes a float"),
        ("amp_configs", 3, TypeError, "takes a dict"),
        ("localsgd_configs", {"k_steps": 0}, ValueError, "at least 1"),
        ("dgc_configs", {"sparsity": 0.9}, TypeError, "list of float"),
        ("recompute_configs", {"checkpoints": [1]}, TypeError, "one element is 1"),
        ("mode", "SERVER", ValueError, "one of COLLECTIVE, PS"),
        ("fp16_allreduce_dtype", "int8", ValueError, "float16, bfloat16"),
    ],
)
def test_wrong_names_types_and_values(
    name: str, value: Any, error: type[Exception], says: str
) -> None:
    strategy = DistributedStrategy()
    with pytest.raises(error, match=says):
        setattr(strategy, name, value)
    assert strategy == DistributedStrategy()


def test_wrong_configs_change_nothing_at_all() -> None:
    strategy = DistributedStrategy()
    with pytest.raises(TypeError):
        strategy.lars_configs = {"lars_coeff": 0.5, "epsilon": "small"}
    assert strategy.lars_configs["lars_coeff"] == 0.001
    with pytest.raises(TypeError, match="cannot be removed"):
        del strategy.lars_configs["epsilon"]


def test_a_sync_decides_the_mode_until_k_steps_are_set() -> None:
    strategy = DistributedStrategy()
    strategy.a_sync_configs = {"k_steps": 100}
    strategy.a_sync = True
    assert strategy.a_sync_configs["k_steps"] == 0
    strategy.a_sync_configs = {"k_steps": 100}
    assert strategy.a_sync_configs["k_steps"] == 100


def full() -> DistributedStrategy:
    strategy = DistributedStrategy()
    strategy.mode = "PS"
    strategy.amp = True
    strategy.amp_configs = {"decr_ratio": 0.7, "custom_white_list": ["softmax"]}
    strategy.dgc_configs = {"sparsity": [0.75, 0.999]}
    strategy.a_sync = False
    strategy.is_with_coordinator = False
    strategy._fuse_grad_size_in_TFLOPS = 20.0
    strategy.build_strategy.enable_auto_fusion = True
    execution = ExecutionStrategy()
    execution.num_threads = 3
    strategy.execution_strategy = execution
    return strategy


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_are_equal_and_independent(how: Any) -> None:
    strategy = full()
    copied = how(strategy)
    assert copied == strategy
    assert to_text(copied) == to_text(strategy)
    copied.dgc_configs["sparsity"].append(0.5)
    copied.build_strategy.enable_auto_fusion = False
    assert strategy == full()
    assert copied != strategy


def test_prototxt_goes_and_comes(tmp_path: Path) -> None:
    strategy = full()
    strategy.save_to_prototxt(tmp_path / "s.prototxt")
    text = (tmp_path / "s.prototxt").read_text()
    assert "amp: true\n" in text
    assert "decr_ratio: 0.7\n" in text
    assert "with_coordinator: false\n" in text
    assert "lars" not in text  # only what was set is written
    loaded = DistributedStrategy()
    loaded.load_from_prototxt(tmp_path / "s.prototxt")
    assert loaded == strategy
    assert loaded.a_sync_configs["k_steps"] == 0


def test_prototxt_with_an_unknown_name_says_where(tmp_path: Path) -> None:
    path = tmp_path / "s.prototxt"
    path.write_text("amp: true\nspeed: 3\n")
    with pytest.raises(ValueError, match=r"s\.prototxt.*speed"):
        DistributedStrategy().load_from_prototxt(path)


def test_build_strategy_takes_objects_and_hands_out_a_live_one() -> None:
    strategy = DistributedStrategy()
    given = BuildStrategy()
    given.fuse_bn_act_ops = True  # type: ignore[attr-defined]
    strategy.build_strategy = given
    assert strategy.build_strategy.fuse_bn_act_ops  # type: ignore[attr-defined]
    strategy.build_strategy.enable_auto_fusion = True
    assert copy.deepcopy(strategy).build_strategy.enable_auto_fusion


def test_refused_names_what_does_not_exist_here() -> None:
    strategy = DistributedStrategy()
    strategy.sync_batch_norm = True
    assert strategy.refused() == []
    strategy.asp = True
    strategy.hybrid_configs = {"mp_degree": 2, "sep_degree": 2}
    assert strategy.refused() == ["asp", "hybrid_configs['sep_degree']"]


def test_print_shows_what_is_on() -> None:
    strategy = DistributedStrategy()
    strategy.recompute = True
    strategy.recompute_configs = {"checkpoints": ["first", "second"]}
    text = str(strategy)
    assert "recompute=True <-> recompute_configs" in text
    assert "first" in text
    assert "second" in text
    assert "amp_configs" not in text
    assert len({len(line) for line in text.splitlines()}) == 1


def test_reference_lists_every_setting_with_its_effect() -> None:
    text = reference()
    rows = settings()
    assert {"amp", "amp_configs", "nccl_comm_num"} <= set(rows)
    for name, row in rows.items():
        assert f"`{name}`" in text or f"## {name}" in text
        fields = row.fields if isinstance(row, ConfigsField) else (row,)
        if isinstance(row, ConfigsField) and row.config is not None:
            fields = with_meanings(row.fields, row.config)
        assert all(isinstance(field, Field) and field.meaning for field in fields), name
    numbers = [row.number for row in rows.values()]
    assert len(numbers) == len(set(numbers))
    page = Path(__file__).parents[3] / "docs" / "strategy.md"
    assert page.read_text() == text, (
        "run python -m fleetx.fleet.strategy.reference > docs/strategy.md"
    )
    assert rows["elastic"].effect is Effect.NONE  # type: ignore[union-attr]


def test_type_checkers_know_every_switch() -> None:
    path = Path(strategy_module.__file__).with_name("technique_switches.pyi")
    made = (
        "run python -m fleetx.fleet.strategy.reference --stub > src/fleetx/fleet/strategy/"
        + path.name
    )
    assert path.read_text() == stub(), made
