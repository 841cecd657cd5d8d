"""What optimizers write into programs: ops, roles, names, accumulators, learning rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small_networks as nets

from fleetx import static
from fleetx.static import clip, layers, lr, optimizer
from fleetx.static.graph.operator import OpRole
from fleetx.static.optimizer import optimizers_of_2x
from fleetx.static.regularizer import L1Decay, L2Decay

ADAM_STATE = ["moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"]


def linear_loss(**param: Any) -> Any:
    """Return mean(x @ w) of raw ops, with `w` made from the given keywords."""
    block = static.default_main_program().global_block()
    w = block.create_parameter(name="w", shape=[5, 10], dtype="float32", **param)
    x = block.create_var(name="x", shape=[10, 8], dtype="float32")
    out = block.create_var(name="out", dtype="float32")
    loss = block.create_var(name="loss", dtype="float32")
    block.append_op(type="mul", inputs={"X": w, "Y": x}, outputs={"Out": out})
    block.append_op(type="mean", inputs={"X": out}, outputs={"Out": loss})
    return loss


@pytest.mark.parametrize(
    ("make", "op_types", "accumulators"),
    [
        (lambda: optimizer.SGDOptimizer(0.1), ["sgd"], []),
        (lambda: optimizer.MomentumOptimizer(0.1, 0.9), ["momentum"], ["velocity"]),
        (lambda: optimizer.LarsMomentumOptimizer(0.1, 0.9), ["lars_momentum"], ["velocity"]),
        (lambda: optimizer.AdagradOptimizer(0.1), ["adagrad"], ["moment"]),
        (lambda: optimizer.DecayedAdagradOptimizer(0.1), ["decayed_adagrad"], ["moment"]),
        (
            lambda: optimizer.RMSPropOptimizer(0.1),
            ["rmsprop"],
            ["momentum", "mean_square", "mean_grad"],
        ),
        (
            lambda: optimizer.AdadeltaOptimizer(0.1),
            ["adadelta"],
            ["_avg_squared_grad", "_avg_squared_update"],
        ),
        (lambda: optimizer.FtrlOptimizer(0.1), ["ftrl"], ["squared", "linear"]),
        (lambda: optimizer.DpsgdOptimizer(0.1), ["dpsgd"], []),
        (lambda: optimizer.AdamOptimizer(0.1), ["adam"], ADAM_STATE),
        (lambda: optimizer.AdamW(0.1), ["adamw"], ADAM_STATE),
        (
            lambda: optimizer.AdamaxOptimizer(0.1),
            ["adamax", "scale"],
            ["moment", "inf_norm", "beta1_pow_acc"],
        ),
        (lambda: optimizer.LambOptimizer(0.1), ["lamb"], ADAM_STATE),
        (lambda: optimizers_of_2x.SGD(0.1), ["sgd"], []),
        (lambda: optimizers_of_2x.Momentum(0.1), ["momentum"], ["velocity"]),
        (lambda: optimizers_of_2x.Adam(0.1), ["adam"], ADAM_STATE),
        (lambda: optimizers_of_2x.Adagrad(0.1), ["adagrad"], ["moment"]),
        (
            lambda: optimizers_of_2x.Adadelta(0.1),
            ["adadelta"],
            ["_avg_squared_grad", "_avg_squared_update"],
        ),
        (
            lambda: optimizers_of_2x.RMSProp(0.1),
            ["rmsprop"],
            ["momentum", "mean_square", "mean_grad"],
        ),
        (
            lambda: optimizers_of_2x.Adamax(0.1),
            ["adamax", "scale"],
            ["moment", "inf_norm", "beta1_pow_acc"],
        ),
        (lambda: optimizers_of_2x.Lamb(0.1), ["lamb"], ADAM_STATE),
    ],
)
def test_ops_accumulators_and_initial_values(
    make: Any, op_types: list[str], accumulators: list[str]
) -> None:
    loss = linear_loss()
    made = make()
    assert len(made._accumulators) == 0
    ops, pairs = made.minimize(loss)
    assert [op.type for op in ops] == op_types
    assert [(p.name, g.name) for p, g in pairs] == [("w", "w@GRAD")]
    assert list(made._accumulators) == accumulators
    names = [f"w_{name}_0" for name in accumulators]
    assert made.get_opti_var_name_list() == names
    startup = static.default_startup_program().global_block()
    assert [op.output("Out")[0] for op in startup.ops] == ["learning_rate_0", *names[::-1]]
    assert {op.type for op in startup.ops} == {"fill_constant"}
    assert startup.ops[0].attr("value") == pytest.approx(0.1)
    main = static.default_main_program().global_block()
    for op in ops:
        assert op.op_role == OpRole.Optimize
        assert op.attr("op_role_var") == ["w", "w@GRAD"]
    for name in names:
        assert main.var(name).persistable
        assert main.var(name).belong_to_optimizer
        assert main.var(name).stop_gradient


def test_a_factor_of_the_parameter_scales_its_rate() -> None:
    ops, _ = optimizer.SGD(0.1).minimize(linear_loss(optimize_attr={"learning_rate": 1.1}))
    assert [op.type for op in ops] == ["scale", "sgd"]
    assert ops[0].op_role == OpRole.LRSched | OpRole.Optimize
    assert ops[1].input("LearningRate") == ops[0].output("Out")


def test_backward_and_apply_gradients_are_minimize() -> None:
    loss = linear_loss()
    sgd = optimizer.SGD(0.1)
    pairs = sgd.backward(loss)
    assert [op.type for op in sgd.apply_gradients(pairs)] == ["sgd"]


def test_updates_come_in_the_order_of_names() -> None:
    *_, loss = nets.mlp()
    ops, _ = optimizer.SGD(0.1).minimize(loss)
    assert [op.input("Param")[0] for op in ops] == ["fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0"]


def test_programs_of_the_loss_are_used_whatever_the_default() -> None:
    loss = linear_loss()
    startup = static.Program()
    with static.program_guard(static.Program(), static.Program()):
        ops, _ = optimizer.Momentum(0.1, 0.9).minimize(loss, startup)
    assert ops[0].block.program is loss.block.program
    assert [op.type for op in startup.global_block().ops] == ["fill_constant"] * 2


def test_name_is_a_prefix_of_the_accumulators() -> None:
    momentum = optimizer.Momentum(0.1, 0.9, name="mine")
    momentum.minimize(linear_loss())
    assert momentum.get_opti_var_name_list() == ["w_mine_velocity_0"]


def test_only_listed_trainable_parameters_are_updated() -> None:
    *_, loss = nets.mlp()
    block = static.default_main_program().global_block()
    block.var("fc_0.w_0").trainable = False  # type: ignore[attr-defined]
    listed = [block.var("fc_1.w_0"), "fc_0.w_0", "fc_0.b_0"]
    ops, _ = optimizer.SGD(0.1, parameter_list=listed).minimize(loss, no_grad_set={"fc_0.b_0"})
    assert [op.input("Param")[0] for op in ops] == ["fc_1.w_0"]


def test_an_accumulator_is_made_once() -> None:
    loss = linear_loss()
    momentum = optimizer.Momentum(0.1, 0.9)
    _, pairs = momentum.minimize(loss)
    with pytest.raises(ValueError, match="velocity already exists for parameter w"):
        momentum.apply_gradients(pairs)
    with pytest.raises(ValueError, match="speed does not exist"):
        momentum._get_accumulator("speed", pairs[0][0])


# -- learning rates --------------------------------------------------------------------------------
def test_rate_given_as_a_variable() -> None:
    loss = linear_loss()
    rate = layers.create_global_var(
        name="my_rate", shape=[1], value=0.5, dtype="float32", persistable=True
    )
    sgd = optimizer.SGD(rate)
    ops, _ = sgd.minimize(loss)
    assert ops[0].input("LearningRate") == ["my_rate"]
    nets.started()
    assert sgd.get_lr() == 0.5


def test_rate_variable_of_another_program_is_refused() -> None:
    with static.program_guard(static.Program(), static.Program()):
        rate = layers.create_global_var([1], 0.5, "float32", persistable=True, name="my_rate")
        sgd = optimizer.SGD(rate)
    with pytest.raises(TypeError, match="'my_rate' belongs to another program"):
        sgd.minimize(linear_loss())


@pytest.mark.parametrize("wrong", ["0.1", [0.1], True])
def test_rate_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="learning_rate of SGDOptimizer must be"):
        optimizer.SGD(wrong)


def test_whole_numbers_are_rates() -> None:
    sgd = optimizer.SGD(1)
    assert sgd.get_lr() == 1.0
    assert isinstance(sgd.get_lr(), float)


def test_set_lr_takes_effect_before_and_after_startup() -> None:
    *_, loss = nets.mlp()
    sgd = optimizer.SGD(0.1)
    sgd.minimize(loss)
    sgd.set_lr(0.0)
    exe = nets.started()
    before = nets.value("fc_0.w_0")
    exe.run(feed=nets.batch(), fetch_list=[loss])
    np.testing.assert_array_equal(nets.value("fc_0.w_0"), before)
    sgd.set_lr(1)
    exe.run(feed=nets.batch(), fetch_list=[loss])
    assert not np.array_equal(nets.value("fc_0.w_0"), before)
    assert sgd.get_lr() == sgd.current_step_lr() == 1.0


def test_set_lr_refuses_what_would_be_lost() -> None:
    with pytest.raises(TypeError, match="takes a number"):
        optimizer.SGD(0.1).set_lr("0.2")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="comes from ExponentialDecay"):
        optimizers_of_2x.SGD(lr.ExponentialDecay(0.1, 0.5)).set_lr(0.2)


def test_scheduler_is_written_before_each_run() -> None:
    *_, loss = nets.mlp()
    schedule = lr.ExponentialDecay(0.1, gamma=0.5)
    optimizers_of_2x.SGD(schedule).minimize(loss)
    exe = nets.started()
    seen = []
    for _ in range(3):
        seen.append(exe.run(feed=nets.batch(), fetch_list=["learning_rate_0"])[0].item())
        schedule.step()
    np.testing.assert_allclose(seen, [0.1, 0.05, 0.025], rtol=1e-6)


def test_set_lr_scheduler_only_before_minimize() -> None:
    *_, loss = nets.mlp()
    sgd = optimizers_of_2x.SGD(0.1)
    with pytest.raises(TypeError, match="takes an LRScheduler, not float"):
        sgd.set_lr_scheduler(0.2)
    sgd.set_lr_scheduler(lr.ExponentialDecay(0.1, gamma=0.5))
    assert sgd.get_lr() == pytest.approx(0.1)
    sgd.minimize(loss)
    with pytest.raises(RuntimeError, match="before minimize"):
        sgd.set_lr_scheduler(lr.ExponentialDecay(0.1, gamma=0.5))


# -- arguments -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: optimizer.SGD(None), "learning_rate"),
        (lambda: optimizer.Momentum(0.1, None), "momentum"),  # type: ignore[arg-type]
        (lambda: optimizer.RMSPropOptimizer(0.1, rho=None), "rho"),  # type: ignore[arg-type]
        (lambda: optimizer.Adam(beta1=None), "beta1"),
        (lambda: optimizer.Adadelta(0.1, epsilon=None), "epsilon"),  # type: ignore[arg-type]
        (lambda: optimizer.Lamb(lamb_weight_decay=None), "weight_decay"),  # type: ignore[arg-type]
    ],
)
def test_missing_settings_are_named(make: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is not set"):
        make()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="grad_clip of SGDOptimizer must be a gradient clip"):
        optimizer.SGD(0.1, grad_clip="norm")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="minimize takes a loss Variable, not float"):
        optimizer.SGD(0.1).minimize(0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"beta1 must be in \[0, 1\), not 1.5"):
        optimizers_of_2x.Adam(beta1=1.5)
    with pytest.raises(TypeError, match="weight_decay must be a float"):
        optimizers_of_2x.SGD(0.1, weight_decay="l2")
    with pytest.raises(TypeError, match="weight_decay of AdamW must be a float, not L2Decay"):
        optimizers_of_2x.AdamW(weight_decay=L2Decay(0.1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parameter groups"):
        optimizers_of_2x.SGD(0.1, parameters=[{"params": []}])
    with pytest.raises(NotImplementedError, match="base class"):
        optimizer.Optimizer(0.1).minimize(linear_loss())


def test_weight_decay_of_2x() -> None:
    loss = linear_loss()
    ops, _ = optimizers_of_2x.Momentum(0.1, weight_decay=0.25).minimize(loss)
    assert ops[0].attr("regularization_method") == "l2_decay"
    assert ops[0].attr("regularization_coeff") == 0.25
    types = [op.type for op in loss.block.ops]
    assert "sum" not in types


def test_weight_decay_of_2x_other_than_l2_is_appended() -> None:
    loss = linear_loss()
    ops, _ = optimizers_of_2x.Momentum(0.1, weight_decay=L1Decay(0.25)).minimize(loss)
    assert ops[0].attr("regularization_method") == ""
    assert [op.type for op in loss.block.ops][-4:] == ["sign", "scale", "sum", "momentum"]


def test_parameters_of_2x_are_chosen_by_either_name() -> None:
    for name in ("parameters", "parameter_list"):
        for kind in (optimizers_of_2x.SGD, optimizers_of_2x.AdamW):
            with static.program_guard(static.Program(), static.Program()):
                *_, loss = nets.mlp()
                chosen = loss.block.program.all_parameters()[:1]
                given: Any = {name: chosen}
                ops, _ = kind(0.1).minimize(loss, **given)
                assert [op.input("Param") for op in ops] == [[chosen[0].name]]


def test_betas_given_as_variables() -> None:
    *_, loss = nets.mlp()
    beta = layers.create_global_var([1], 0.8, "float32", persistable=True, name="beta")
    ops, _ = optimizer.Adam(0.1, beta1=beta).minimize(loss)
    assert ops[0].input("Beta1Tensor") == ["beta"]
    assert ops[0].input("Beta2Tensor") == []
    exe = nets.started()
    exe.run(feed=nets.batch(), fetch_list=[loss])
    assert nets.value("fc_0.w_0_beta1_pow_acc_0").item() == pytest.approx(0.9 * 0.8)


# -- state -----------------------------------------------------------------------------------------
def test_state_goes_out_and_in() -> None:
    *_, loss = nets.mlp()
    schedule = lr.ExponentialDecay(0.1, gamma=0.5)
    adam = optimizers_of_2x.Adam(schedule)
    adam.minimize(loss)
    with pytest.raises(RuntimeError, match="run the startup program first"):
        adam.state_dict()
    exe = nets.started()
    for _ in range(2):
        exe.run(feed=nets.batch(), fetch_list=[loss])
        schedule.step()
    state = adam.state_dict()
    assert set(state) == {*adam.get_opti_var_name_list(), "LR_Scheduler"}
    exe.run(feed=nets.batch(), fetch_list=[loss])
    schedule.step()
    adam.set_state_dict(state)
    np.testing.assert_array_equal(nets.value("fc_0.w_0_moment1_0"), state["fc_0.w_0_moment1_0"])
    assert adam.get_lr() == pytest.approx(0.025)


def test_state_that_does_not_fit_changes_nothing() -> None:
    *_, loss = nets.mlp()
    momentum = optimizer.Momentum(0.1, 0.9)
    momentum.minimize(loss)
    nets.started()
    state = {k: v + 1 for k, v in momentum.state_dict().items()}
    with pytest.raises(ValueError, match="'fc_1.w_0_velocity_0' has shape"):
        momentum.set_dict({**state, "fc_1.w_0_velocity_0": np.zeros(3)})
    with pytest.raises(ValueError, match="no accumulator 'fc_1.w_0_velocity_0'"):
        momentum.set_dict({k: v for k, v in state.items() if not k.startswith("fc_1.w")})
    assert not nets.value("fc_0.w_0_velocity_0").any()


@pytest.mark.parametrize(
    "made",
    [
        optimizer.SGD(0.1, name="first"),
        optimizer.Momentum(0.1, 0.8, use_nesterov=True, grad_clip=clip.GradientClipByNorm(2.0)),
        optimizer.Adam(0.2, beta1=0.5, epsilon=1e-4, parameter_list=["w"]),
    ],
)
def test_settings_make_the_same_optimizer(made):
    again = type(made)(**made.settings())
    assert again.settings() == made.settings()
    other = clip.GradientClipByValue(1.0)
    assert made.with_grad_clip(other).settings() == {**made.settings(), "grad_clip": other}


@pytest.mark.usefixtures("fresh_graph")
def test_no_grad_set_is_checked() -> None:
    loss = linear_loss()
    with pytest.raises(TypeError, match="no_grad_set must be a list, tuple or set, not int"):
        optimizer.SGD(0.1).minimize(loss, no_grad_set=3)
