"""Dense tables: equal to one process with torch's optimizers and with a static program."""

import json

import numpy as np
import pytest
import torch

from fleetx import static
from fleetx.ps.tables.dense_table import DenseTable
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import (
    BlockSpec,
    ClipSpec,
    DenseTableSpec,
    InitializerSpec,
    OptimizerSpec,
    spec_from_dict,
)
from fleetx.ps.wire.partition import slice_parameter
from fleetx.static import clip, optimizer, regularizer

SHAPES = {"w": (6, 3), "b": (5,)}


def gradients(count=6):
    dice = torch.Generator().manual_seed(3)
    for _ in range(count):
        yield {
            name: torch.randn(shape, generator=dice, dtype=torch.float64)
            for name, shape in SHAPES.items()
        }


def first_values():
    dice = torch.Generator().manual_seed(4)
    return {n: torch.randn(s, generator=dice, dtype=torch.float64) for n, s in SHAPES.items()}


def tables(spec, servers, **block_settings):
    """One table per server, with sliced parameters where the optimizer allows."""
    slices = [
        each
        for name, shape in SHAPES.items()
        for each in slice_parameter(
            name,
            shape,
            servers=servers,
            min_block_size=2,
            slice_var_up=not spec.needs_whole_parameters,
        )
    ]
    made = []
    for server in range(servers):
        blocks = tuple(
            BlockSpec(
                name=each.name,
                parameter=each.parameter,
                shape=each.shape,
                start=each.start,
                **block_settings.get(each.parameter, {}),
            )
            for each in slices[server::servers]
        )
        table = DenseTableSpec(name="d", blocks=blocks, dtype="float64", optimizer=spec)
        table = DenseTable(spec_from_dict(json.loads(json.dumps(table.to_dict()))))
        made.append((table, slices[server::servers]))
    for table, here in made:
        for each in here:
            table.assign(each.name, each.of(first_values()[each.parameter]))
    return made


def train(spec, servers, rates, **block_settings):
    made = tables(spec, servers, **block_settings)
    for rate, grads in zip(rates, gradients(), strict=True):
        parts = [{e.name: e.of(grads[e.parameter]) for e in here} for _, here in made]
        norm = sum(t.square_norm(p) for (t, _), p in zip(made, parts, strict=True)) ** 0.5
        for (table, _), part in zip(made, parts, strict=True):
            table.push(part, rate=rate, norm=norm)
    result = {name: torch.empty(shape).double() for name, shape in SHAPES.items()}
    for table, here in made:
        for each in here:
            each.of(result[each.parameter]).copy_(table.pull(each.name))
    return result


RATES = [0.1, 0.1, 0.05, 0.05, 0.2, 0.2]


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(
    ("kind", "settings", "arguments"),
    [
        ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, None),
        ("Adam", {"beta1": 0.8, "weight_decay": 0.01}, {"betas": (0.8, 0.999)}),
        ("AdamW", {"weight_decay": 0.1, "amsgrad": True}, {}),
        ("Adagrad", {"initial_accumulator_value": 0.1, "lr_decay": 0.1}, {}),
        ("RMSprop", {"momentum": 0.5, "centered": True}, {}),
    ],
)
def test_equal_torch_in_one_process(kind, settings, arguments, servers):
    params = {n: torch.nn.Parameter(v) for n, v in first_values().items()}
    own = {k: v for k, v in settings.items() if k not in ("beta1", "beta2")}
    peer = getattr(torch.optim, kind)(params.values(), lr=0.1, **{**own, **(arguments or {})})
    for rate, grads in zip(RATES, gradients(), strict=True):
        for name, param in params.items():
            param.grad = grads[name]
        torch.nn.utils.clip_grad_norm_(params.values(), 1.5)
        peer.param_groups[0]["lr"] = rate
        peer.step()
    spec = OptimizerSpec(
        kind=f"torch.{kind}", settings=settings, clip=ClipSpec(kind="global_norm", limit=1.5)
    )
    found = train(spec, servers, RATES)
    for name, param in params.items():
        # torch clips to 1.5 / (norm + 1e-6)
        torch.testing.assert_close(found[name], param.detach(), rtol=0, atol=1e-6)


# The optimizer of a program, its op and settings, and what differs for parameter b.
PROGRAMS = {
    "sgd": (lambda **k: optimizer.SGD(0.1, **k), {}, {}),
    "momentum": (
        lambda **k: optimizer.Momentum(0.1, 0.9, use_nesterov=True, **k),
        {"mu": 0.9, "use_nesterov": True},
        {},
    ),
    "adam": (lambda **k: optimizer.Adam(0.1, beta1=0.8, **k), {"beta1": 0.8}, {}),
    "adamw": (
        lambda grad_clip, **k: optimizer.AdamW(
            0.1, weight_decay=0.2, apply_decay_param_fun=lambda n: n == "w", grad_clip=grad_clip
        ),
        {"coeff": 0.2, "with_decay": True},
        {"b": {"settings": {"with_decay": False}}},
    ),
    "adagrad": (
        lambda **k: optimizer.Adagrad(0.1, initial_accumulator_value=0.3, **k),
        {"initial_accumulator_value": 0.3},
        {},
    ),
    "rmsprop": (
        lambda **k: optimizer.RMSProp(0.1, momentum=0.5, centered=True, **k),
        {"decay": 0.95, "epsilon": 1e-6, "momentum": 0.5, "centered": True},
        {},
    ),
    "lars_momentum": (lambda **k: optimizer.LarsMomentum(0.1, 0.9, **k), {"mu": 0.9}, {}),
    "lamb": (
        lambda regularization, **k: optimizer.Lamb(0.1, lamb_weight_decay=0.02, **k),
        {"weight_decay": 0.02},
        {},
    ),
}
CLIPS = {
    None: None,
    "value": clip.GradientClipByValue(0.7),
    "norm": clip.GradientClipByNorm(1.2),
    "global_norm": clip.GradientClipByGlobalNorm(1.5),
}
LIMITS = {"value": 0.7, "norm": 1.2, "global_norm": 1.5}


def run_program(kind, how):
    """Train in one process: gradients are fed, since each loss is a product with them."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        layers = static.layers
        losses = []
        for name, shape in SHAPES.items():
            grad = static.data(f"{name}_grad", list(shape), "float64")
            attr = static.ParamAttr(name=name, learning_rate=2.0 if name == "b" else 1.0)
            param = layers.create_parameter(list(shape), "float64", attr=attr)
            losses.append(layers.reduce_sum(layers.elementwise_mul(param, grad)))
        loss = layers.sums(losses)
        decay = regularizer.L2Decay(0.05)
        PROGRAMS[kind][0](grad_clip=CLIPS[how], regularization=decay).minimize(loss)
    scope = static.Scope()
    with static.scope_guard(scope):
        executor = static.Executor(static.CPUPlace())
        executor.run(startup)
        for name, value in first_values().items():
            scope.find_var(name).get_tensor().set(value.numpy(), static.CPUPlace())
        for grads in gradients():
            executor.run(main, feed={f"{n}_grad": g.numpy() for n, g in grads.items()})
        return {n: torch.from_numpy(np.array(scope.find_var(n).get_tensor())) for n in SHAPES}


@pytest.mark.parametrize("how", list(CLIPS))
@pytest.mark.parametrize("kind", list(PROGRAMS))
def test_equal_a_program_in_one_process(kind, how):
    _, settings, blocks = PROGRAMS[kind]
    blocks = {**blocks, "b": {**blocks.get("b", {}), "rate_scale": 2.0}}
    has_penalty = kind not in ("adamw", "lamb")
    spec = OptimizerSpec(
        kind=kind,
        settings=settings,
        l2=0.05 if has_penalty else 0.0,
        clip=None if how is None else ClipSpec(kind=how, limit=LIMITS[how]),
    )
    expected = run_program(kind, how)
    for servers in (1, 2, 3):
        found = train(spec, servers, [0.1] * 6, **blocks)
        for name in SHAPES:
            torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)


class TestTable:
    SPEC = OptimizerSpec(kind="adam", l1=0.1)

    def table(self, spec=SPEC):
        return tables(spec, 1)[0][0]

    @pytest.mark.parametrize("kind", ["adam", "momentum", "torch.Adam", "torch.SGD"])
    def test_a_restored_table_goes_on_alike(self, kind):
        spec = OptimizerSpec(kind=kind, settings={"momentum": 0.9} if kind == "torch.SGD" else {})
        whole, first, second = (self.table(spec) for _ in range(3))
        for number, grads in enumerate(gradients()):
            whole.push(grads)
            (first if number < 3 else second).push(grads)
            if number == 2:
                second.load_state_dict(first.state_dict())
        for name in SHAPES:
            assert torch.equal(whole.pull(name), second.pull(name))
        assert second.nbytes == whole.nbytes

    @pytest.mark.parametrize("kind", ["adagrad", "torch.Adagrad", "torch.Adam"])
    def test_parameters_go_with_another_optimizer(self, kind):
        first, second = self.table(), self.table(OptimizerSpec(kind=kind))
        for grads in gradients(2):
            first.push(grads)
        second.load_state_dict(first.state_dict())
        assert torch.equal(first.pull("w"), second.pull("w"))
        second.push(grads)
        assert second.pull("w").isfinite().all()

    def test_some_blocks_alone(self):
        table = self.table()
        before = table.pull("b")
        table.push({"w": next(gradients())["w"]})
        assert torch.equal(table.pull("b"), before)

    def test_deltas_and_out(self):
        table = self.table()
        before, out = table.pull("w"), torch.empty(SHAPES["w"]).double()
        table.add("w", torch.ones(SHAPES["w"]).double())
        assert table.pull("w", out=out) is out
        assert torch.equal(out, before + 1.0)

    def test_first_values_do_not_depend_on_the_slicing(self):
        init = {"initializer": InitializerSpec(kind="normal")}
        whole = BlockSpec(name="w", parameter="w", shape=(6, 3), **init)
        part = BlockSpec(name="w.block1", parameter="w", shape=(2, 3), start=12, **init)
        one = DenseTable(DenseTableSpec(name="d", blocks=(whole,)))
        other = DenseTable(DenseTableSpec(name="d", blocks=(part,)))
        assert torch.equal(one.pull("w")[4:], other.pull("w.block1"))

    def test_gradients_are_left_alone(self):
        for kind in ("sgd", "momentum", "adam", "adagrad", "rmsprop", "torch.Adam"):
            spec = OptimizerSpec(kind=kind, l2=0.1, clip=ClipSpec(kind="value", limit=0.5))
            (grads,) = gradients(1)
            before = {name: grad.clone() for name, grad in grads.items()}
            self.table(spec).push(grads)
            for name, grad in grads.items():
                assert torch.equal(grad, before[name])

    @pytest.mark.parametrize(
        ("grads", "said"),
        [
            ({"x": torch.ones(1)}, "no block 'x'"),
            ({"b": torch.ones(4).double()}, "shape \\[5\\]"),
            ({"w": torch.ones(6, 3).double(), "b": torch.ones(5)}, "float64"),
        ],
    )
    def test_a_wrong_push_changes_nothing(self, grads, said):
        table = self.table()
        before = table.state_dict()
        with pytest.raises(ValueError, match=said):
            table.push(grads)
        after = table.state_dict()
        assert all(torch.equal(before[key], after[key]) for key in before)

    @pytest.mark.parametrize("kind", ["adam", "torch.Adam"])
    def test_a_wrong_state_changes_nothing(self, kind):
        table = self.table(OptimizerSpec(kind=kind))
        table.push(next(gradients()))
        before = table.state_dict()
        slot = next(key for key in before if key.startswith("w/") and key != "w/Param")
        for changes, said in (
            ({"b/Param": None}, "lacks block 'b'"),
            ({"b/Param": torch.ones(4).double()}, "shape"),
            ({slot: torch.ones(2, 2).double()}, "shape"),
            ({"x/Param": torch.ones(1)}, "no block 'x'"),
        ):
            state = {k: v for k, v in {**before, **changes}.items() if v is not None}
            with pytest.raises(ValueError, match=said):
                table.load_state_dict(state)
            after = table.state_dict()
            assert all(torch.equal(before[key], after[key]) for key in before)

    @pytest.mark.parametrize("kind", ["adam", "torch.Adam"])
    def test_settings_are_checked(self, kind):
        with pytest.raises(SpecError, match="no setting mommentum"):
            self.table(OptimizerSpec(kind=kind, settings={"mommentum": 0.9}))

    def test_no_blocks_at_all(self):
        for kind in ("adam", "torch.Adam"):
            spec = DenseTableSpec(name="d", blocks=(), optimizer=OptimizerSpec(kind=kind))
            DenseTable(spec).push({})
