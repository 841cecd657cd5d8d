"""Gradients of tables that are looked up with is_sparse: rows all the way to the update."""

import numpy as np
import pytest
import torch

from fleetx import static
from fleetx.static import layers, optimizer
from fleetx.static.clip import (
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByTorchNorm,
    GradientClipByValue,
)
from fleetx.static.lowering import lower
from fleetx.static.mixed_precision import decorate
from fleetx.static.optimizer import optimizers_of_2x
from fleetx.static.regularizer import L1Decay, L2Decay

HEIGHT, DIM = 50, 3
_RNG = np.random.default_rng(3)
FEEDS = [
    {
        "a": _RNG.integers(0, 10, (4, 1)),
        "b": _RNG.integers(5, 15, (4, 1)),
        "weight": _RNG.normal(size=(4, DIM)).astype("float32"),
    }
    for _ in range(3)
]
OPTIMIZERS = {
    "sgd": lambda **more: optimizer.SGD(0.1, **more),
    "momentum": lambda **more: optimizer.Momentum(0.1, 0.9, **more),
    "adagrad": lambda **more: optimizer.Adagrad(0.1, **more),
    "decayed adagrad": lambda **more: optimizer.DecayedAdagrad(0.1, **more),
    "rmsprop": lambda **more: optimizer.RMSProp(0.1, momentum=0.5, **more),
    "centered rmsprop": lambda **more: optimizer.RMSProp(0.1, centered=True, **more),
    "ftrl": lambda **more: optimizer.Ftrl(0.1, l1=0.01, **more),
    "adadelta": lambda **more: optimizer.Adadelta(0.1, **more),
    "adamax": lambda **more: optimizer.Adamax(0.1, **more),
    "lamb": lambda **more: optimizer.Lamb(0.1, **more),
}


def build(made, *, is_sparse, lod_level=0, mixed=False, hooked=False):
    """Return a program that looks up one table twice, its startup program and its loss."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        ids = [layers.data(n, [1], dtype="int64", lod_level=lod_level) for n in ("a", "b")]
        weight = layers.data("weight", [DIM])
        start = np.random.default_rng(1).normal(size=(HEIGHT, DIM)).astype("float32")
        attr = static.ParamAttr(
            name="table", initializer=static.initializer.NumpyArrayInitializer(start)
        )
        first, second = (
            layers.embedding(each, [HEIGHT, DIM], is_sparse=is_sparse, param_attr=attr)
            for each in ids
        )
        if hooked:  # the gradient ops then run one by one
            first.error_clip = static.clip.ErrorClipByValue(100.0)
        loss = layers.reduce_sum(first * weight + second * second)
        if mixed:
            table = main.global_block().var("table")
            loss = loss + layers.reduce_sum(layers.square(table))
        made.minimize(loss, startup)
    return main, startup, loss


def run(main, startup, fetches=(), names=("table",)):
    """Train; return the values of variables and what the last run fetched."""
    executor, scope = static.Executor(), static.Scope()
    with static.scope_guard(scope):
        executor.run(startup)
        for feed in FEEDS:
            fetched = executor.run(main, feed=feed, fetch_list=list(fetches))
        return [scope.find_var(n).get_tensor().numpy().copy() for n in names], fetched


def source_of(main, loss, scope=None):
    """Return the text of the step's function."""
    step = lower(main, list(FEEDS[0]), [loss.name], scope or static.Scope(), torch.device("cpu"))
    return step.source


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("hooked", [False, True])
def test_rows_train_as_whole_gradients(kind, hooked):
    results = [
        run(*build(OPTIMIZERS[kind](), is_sparse=is_sparse, hooked=hooked)[:2])[0]
        for is_sparse in (False, True)
    ]
    np.testing.assert_allclose(results[1], results[0], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"grad_clip": GradientClipByNorm(0.7)},
        {"grad_clip": GradientClipByValue(0.5)},
        {"grad_clip": GradientClipByGlobalNorm(0.7)},
        {"grad_clip": GradientClipByTorchNorm(0.7)},
        {"regularization": L2Decay(0.1)},
        {"regularization": L1Decay(0.1)},
    ],
    ids=lambda more: type(next(iter(more.values()))).__name__,
)
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adagrad"])
def test_rows_are_clipped_and_decayed_as_whole_gradients(kind, more):
    results = [
        run(*build(OPTIMIZERS[kind](**more), is_sparse=is_sparse)[:2])[0]
        for is_sparse in (False, True)
    ]
    np.testing.assert_allclose(results[1], results[0], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("decay", [L1Decay(0.01), L2Decay(0.01)], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("kind", ["SGD", "Momentum", "Adam", "Adagrad", "RMSProp"])
def test_optimizers_of_2x_decay_rows_as_whole_gradients(kind, decay):
    made = [getattr(optimizers_of_2x, kind)(0.1, weight_decay=decay) for _ in range(2)]
    undecayed = getattr(optimizers_of_2x, kind)(0.1)
    (sparse,), _ = run(*build(made[0], is_sparse=True)[:2])
    (dense,), _ = run(*build(made[1], is_sparse=False)[:2])
    (without,), _ = run(*build(undecayed, is_sparse=True)[:2])
    np.testing.assert_allclose(sparse, dense, rtol=1e-5, atol=1e-6)
    assert np.abs(sparse - without).max() > 1e-4


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("clip", [None, GradientClipByGlobalNorm(0.7), GradientClipByNorm(0.7)])
def test_no_step_makes_the_gradient_whole(clip, hooked):
    main, _, loss = build(
        optimizer.Adam(0.1, lazy_mode=True, grad_clip=clip), is_sparse=True, hooked=hooked
    )
    assert "to_dense" not in source_of(main, loss)


def test_an_optimizer_of_all_rows_reads_the_gradient_as_a_whole():
    main, _, loss = build(OPTIMIZERS["momentum"](), is_sparse=True)
    assert source_of(main, loss).count("to_dense") == 1


def test_a_fetched_gradient_is_whole():
    results = []
    for is_sparse in (False, True):
        main, startup, _ = build(optimizer.SGD(0.1), is_sparse=is_sparse)
        results.append(run(main, startup, ["table@GRAD"])[1][0])
    assert results[1].shape == (HEIGHT, DIM)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6, atol=1e-7)


def test_a_gradient_in_the_scope_is_whole():
    main, startup, _ = build(optimizer.SGD(0.1), is_sparse=True)
    main.global_block().var("table@GRAD").persistable = True
    (table, grad), _ = run(main, startup, names=("table", "table@GRAD"))
    assert grad.shape == table.shape


def test_a_table_with_another_use_has_a_whole_gradient():
    results = []
    for is_sparse in (False, True):
        main, startup, _ = build(optimizer.Adam(0.1), is_sparse=is_sparse, mixed=True)
        results.append(run(main, startup)[0])
    np.testing.assert_allclose(results[1], results[0], rtol=2e-6, atol=1e-6)


def test_mixed_precision_scales_rows():
    results = []
    for is_sparse in (False, True):
        made = decorate(optimizer.SGD(0.1), init_loss_scaling=8.0)
        main, startup, loss = build(made, is_sparse=is_sparse)
        results.append(run(main, startup)[0])
    assert "to_dense" not in source_of(main, loss)
    np.testing.assert_allclose(results[1], results[0], rtol=2e-6, atol=1e-6)


def test_lazy_adam_changes_only_the_rows_in_use():
    main, startup, _ = build(optimizer.Adam(0.1, lazy_mode=True), is_sparse=True)
    names = ("table", "table_moment1_0", "table_moment2_0")
    start = np.random.default_rng(1).normal(size=(HEIGHT, DIM)).astype("float32")
    (table, *moments), _ = run(main, startup, names=names)
    used = np.unique([feed[n] for feed in FEEDS for n in ("a", "b")])
    others = np.setdiff1d(np.arange(HEIGHT), used)
    assert (table[others] == start[others]).all()
    assert all((moment[others] == 0).all() for moment in moments)
    assert (table[used] != start[used]).any(1).all()


def test_sequences_train_as_single_ids():
    made = optimizer.Adam(0.1, lazy_mode=True)
    plain = run(*build(made, is_sparse=True)[:2])[0]
    made = optimizer.Adam(0.1, lazy_mode=True)
    sequences = run(*build(made, is_sparse=True, lod_level=1)[:2])[0]
    np.testing.assert_array_equal(sequences, plain)


@pytest.mark.slow
def test_a_compiled_step_updates_the_same_rows():
    results = []
    for fused in (False, True):
        main, startup, _ = build(optimizer.Adam(0.1, lazy_mode=True), is_sparse=True)
        build_strategy = static.BuildStrategy()
        build_strategy.enable_auto_fusion = fused
        program = static.CompiledProgram(main, build_strategy=build_strategy)
        results.append(run(program, startup)[0])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)
