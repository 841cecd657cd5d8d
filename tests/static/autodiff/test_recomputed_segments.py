"""Recomputation: the same gradients, with activations between checkpoints made again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_networks import needs_compiler

from fleetx import static
from fleetx.static import layers
from fleetx.static.lowering import lower
from fleetx.static.lowering.segments import choose_runner, run_offloaded_segment, run_segment
from fleetx.static.optimizer.recompute_optimizer import RecomputeOptimizer

FEED = {"x": np.random.default_rng(0).random((6, 4), np.float32)}


def deep_net(*, dropout: float = 0.0) -> tuple[list[Any], Any]:
    """Return the hidden variables and the loss of four layers with fixed weights."""
    hidden = layers.data("x", [4])
    kept = []
    for i in range(4):
        weight = static.ParamAttr(
            name=f"w{i}", initializer=static.initializer.Constant(0.1 * i + 0.1)
        )
        hidden = layers.fc(hidden, 4, act="tanh", param_attr=weight)
        if dropout:
            hidden = layers.dropout(hidden, dropout)
        kept.append(hidden)
    return kept, layers.mean(hidden)


def trained_weights(
    checkpoints: tuple[int, ...] | None, *, compiled: bool = False
) -> list[np.ndarray]:
    """Return the weights after three steps of momentum."""
    with static.unique_name.guard(), static.program_guard(static.Program(), static.Program()):
        kept, loss = deep_net()
        optimizer: Any = static.optimizer.Momentum(0.5, 0.9)
        if checkpoints is not None:
            optimizer = RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints([kept[i] for i in checkpoints])
        optimizer.minimize(loss)
        strategy = static.BuildStrategy()
        strategy.enable_auto_fusion = compiled
        program = static.CompiledProgram(static.default_main_program(), strategy)
        exe, scope = static.Executor(), static.Scope()
        exe.run(static.default_startup_program(), scope=scope)
        for _ in range(3):
            exe.run(program, feed=FEED, scope=scope)
        return [np.array(scope.find_var(f"w{i}").get_tensor()) for i in range(4)]


@pytest.mark.parametrize("checkpoints", [(0,), (2,), (0, 2), (2, 0), (1, 3), (0, 1, 2, 3)])
def test_training_is_the_same_as_without(checkpoints: tuple[int, ...]) -> None:
    for plain, again in zip(trained_weights(None), trained_weights(checkpoints), strict=True):
        np.testing.assert_array_equal(again, plain)


def rich_net(build: Any = None) -> tuple[list[Any], Any]:
    """Return checkpoints and loss of a network with statistics, seeds and a value used later."""
    first = hidden = layers.data("x", [4])
    kept = []
    for i in range(3):
        hidden = layers.batch_norm(layers.fc(hidden, 4), act="tanh")
        hidden = layers.dropout(hidden, 0.3, seed=i + 1)
        if build is not None:
            hidden = build(hidden)
        hidden = layers.layer_norm(hidden + first)
        kept.append(hidden)
    return kept, layers.mean(layers.fc(hidden, 1))


def run_rich(
    recompute: bool,
    *,
    build: Any = None,
    fetch: tuple[str, ...] = (),
    program: Any = None,
    rule: type = static.optimizer.Adam,
) -> tuple[list[Any], dict[str, np.ndarray], str]:
    """Return what three steps fetched, the variables at the end, and the generated code."""
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    main.random_seed = startup.random_seed = 7
    with static.unique_name.guard(), static.program_guard(main, startup):
        kept, loss = rich_net(build)
        optimizer: Any = rule(0.05)
        if recompute:
            optimizer = RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints(kept)
        optimizer.minimize(loss)
    if program is not None:
        main = program(main)
    exe = static.Executor()
    exe.run(startup, scope=scope)
    rows = [exe.run(main, feed=FEED, fetch_list=[loss.name, *fetch], scope=scope) for _ in range(3)]
    names = [v.name for v in main.list_vars() if v.persistable]
    state = {n: np.array(scope.find_var(n).get_tensor()) for n in names}
    step = lower(main, ["x"], [loss.name, *fetch], scope, torch.device("cpu"))
    return rows, state, step.source


def assert_same_training(plain: Any, again: Any) -> None:
    for first, second in zip(plain[0], again[0], strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
    assert plain[1].keys() == again[1].keys()
    for name, value in plain[1].items():
        np.testing.assert_array_equal(again[1][name], value, err_msg=name)


def test_statistics_move_once_and_dropouts_repeat() -> None:
    plain, again = run_rich(False), run_rich(True)
    assert_same_training(plain, again)
    assert again[2].count("run_segment(") == 3
    assert "run_segment(" not in plain[2]


def test_gradient_ops_one_by_one_give_the_same() -> None:
    # The recomputed value is fetched, so the segments cannot be left to autograd.
    # Not with Adam: a bias in front of a normalisation has no gradient but rounding errors, which
    # differ between CPUs, and Adam makes updates of full size of them.
    sgd = static.optimizer.SGD
    plain = run_rich(False, fetch=("batch_norm_0.tmp_2",), rule=sgd)
    again = run_rich(True, fetch=("batch_norm_0.tmp_2.subprog_2",), rule=sgd)
    assert "run_segment(" not in again[2]
    for name, value in plain[1].items():
        np.testing.assert_allclose(again[1][name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_what_a_segment_makes_can_be_fetched() -> None:
    names = ("batch_norm_1.tmp_2", "fc_0.tmp_1", "fc_0.w_0@GRAD")
    assert_same_training(run_rich(False, fetch=names), run_rich(True, fetch=names))


def test_a_program_read_from_bytes_recomputes_too() -> None:
    def through_a_file(program: static.Program) -> static.Program:
        return static.Program.parse_from_string(program.desc.serialize_to_string())

    plain, again = run_rich(False), run_rich(True, program=through_a_file)
    assert_same_training(plain, again)
    assert again[2].count("run_segment(") == 3


def test_random_values_are_drawn_once() -> None:
    def noisy(hidden: Any) -> Any:
        return hidden * layers.uniform_random([6, 4], min=0.5, max=1.5, seed=3)

    def noisy_by_shape(hidden: Any) -> Any:
        return hidden * layers.uniform_random_batch_size_like(hidden, [-1, 4], seed=3)

    for build, calls in ((noisy, 3), (noisy_by_shape, 6)):
        plain, again = run_rich(False, build=build), run_rich(True, build=build)
        assert_same_training(plain, again)
        assert again[2].count("run_segment(") == calls


def test_an_error_in_a_segment_names_its_op() -> None:
    kept, loss = deep_net()
    optimizer = RecomputeOptimizer(static.optimizer.SGD(0.1))
    optimizer._set_checkpoints([kept[1]])
    optimizer.minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    static.global_scope().find_var("w1").get_tensor().set(np.ones((3, 3), np.float32), None)
    with pytest.raises(RuntimeError, match="'mul'|'elementwise_add'"):
        exe.run(feed=FEED)


@pytest.mark.slow
@needs_compiler
def test_a_compiled_program_recomputes_too() -> None:
    plain = trained_weights(None)
    again = trained_weights((0, 2), compiled=True)
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5)


def test_checkpoints_that_do_not_exist_are_refused() -> None:
    kept, loss = deep_net()
    near = kept[1].name
    with pytest.raises(ValueError, match=f"checkpoint '{near}x' .* similar names are .*{near}"):
        static.append_backward(loss, checkpoints=[near + "x"])


def test_a_checkpoint_off_the_path_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    kept, loss = deep_net()
    aside = layers.fc(kept[0], 2)
    static.append_backward(loss, checkpoints=[aside, kept[2]])
    assert f"checkpoint '{aside.name}' is ignored" in caplog.text
    assert any(op.recomputes for op in static.default_main_program().global_block().ops)


def test_offload_needs_another_device() -> None:
    with pytest.raises(ValueError, match="enable_offload"):
        choose_runner(offloads=True, device="cpu")
    assert choose_runner(offloads=False, device="cpu") is run_segment
    assert choose_runner(offloads=True, device="cuda") is run_offloaded_segment


def test_offloaded_segments_give_the_same_gradients() -> None:
    x = torch.randn(5, 3, requires_grad=True)
    w = torch.randn(3, 3, requires_grad=True)

    def segment(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.tanh(torch.tanh(x @ w) @ w),)

    grads = [
        torch.autograd.grad(runner(segment, 1, (), x, w)[0].sum(), (x, w))
        for runner in (run_segment, run_offloaded_segment)
    ]
    plain = torch.autograd.grad(segment(x, w)[0].sum(), (x, w))
    for found in grads:
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


def test_ops_of_a_segment_run_again_before_its_gradients() -> None:
    kept, loss = deep_net()
    static.append_backward(loss, checkpoints=[kept[1].name])
    types = [op.type for op in static.default_main_program().global_block().ops]
    tail = types[types.index("mean_grad") + 1 :]
    last_two = ["tanh_grad", "elementwise_add_grad", "mul_grad"] * 2
    again = ["mul", "elementwise_add", "tanh", "mul", "elementwise_add"]
    assert tail == [*last_two, *again, *last_two]


def test_the_backward_pass_reads_checkpoints_only() -> None:
    kept, loss = deep_net()
    static.append_backward(loss, checkpoints=[kept[1], kept[3]])
    ops = static.default_main_program().global_block().ops
    first_gradient = next(i for i, op in enumerate(ops) if op.type == "mean_grad")
    made = {n for op in ops[:first_gradient] for n in op.output_arg_names}
    late = {n for op in ops[first_gradient:] for n in op.input_arg_names}
    assert made & late - {"mean_0.tmp_0", "mean_0.tmp_0@GRAD"} == {kept[1].name, kept[3].name}


def test_dropout_drops_the_same_elements_again() -> None:
    kept, loss = deep_net(dropout=0.5)
    static.append_backward(loss, checkpoints=[kept[2]])
    exe = static.Executor()
    exe.run(static.default_startup_program())
    mask = kept[0].op.output("Mask")[0]
    masks = [exe.run(feed=FEED, fetch_list=[mask, mask + ".subprog_0"]) for _ in range(2)]
    for first, again in masks:
        np.testing.assert_array_equal(first, again)
    assert not np.array_equal(masks[0][0], masks[1][0])


def test_a_loop_is_not_recomputed() -> None:
    x = layers.data("x", [4])
    less = layers.less_than(layers.zeros([1], "float32"), layers.ones([1], "float32"))
    y = layers.fc(layers.cond(less, lambda: x * 2.0, lambda: x), 2)
    with pytest.raises(ValueError, match="inner block cannot be recomputed"):
        static.append_backward(layers.mean(y), checkpoints=[y])


def test_checkpoints_must_be_set_first() -> None:
    _, loss = deep_net()
    with pytest.raises(ValueError, match="set_checkpoints"):
        RecomputeOptimizer(static.optimizer.SGD(0.1)).minimize(loss)
