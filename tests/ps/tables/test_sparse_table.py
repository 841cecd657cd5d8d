"""Sparse tables: the optimizers' formulas, first values, and their state."""

import threading

import pytest
import torch

from fleetx.ps.tables.row_rules import EvictionSpec
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import ClipSpec, InitializerSpec, OptimizerSpec, SparseTableSpec
from fleetx.ps.wire.partition import split_ids

# Each test runs with the compiled modules and with their fallbacks.
pytestmark = pytest.mark.usefixtures("implementation")

DIM = 4
# Any 64-bit number is an id.
POOL = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 77, 10**12, 5])
NORMAL = InitializerSpec(kind="normal")


def make(kind="sgd", *, rate=0.1, settings=None, l1=0.0, l2=0.0, clip=None, **more):
    optimizer = OptimizerSpec(
        kind=kind, rate=rate, settings=settings or {}, l1=l1, l2=l2, clip=clip
    )
    return SparseTable(
        SparseTableSpec(
            name="t",
            **{"dim": DIM, "dtype": "float64", "initializer": NORMAL, **more},
            optimizer=optimizer,
        )
    )


def steps(count=12, seed=0):
    """Random ids, with repetitions, and their gradients."""
    dice = torch.Generator().manual_seed(seed)
    for _ in range(count):
        picks = torch.randint(0, len(POOL), (6,), generator=dice)
        yield picks, torch.randn(6, DIM, generator=dice, dtype=torch.float64)


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("kind", ["adagrad", "adam", "ftrl"])
def test_a_push_of_the_ids_of_a_pull_is_as_any_other(kind, repeats):
    first, second = make(kind), make(kind)
    ids = torch.arange(100) * 7  # enough for their rows to be remembered
    for step, (_, grad) in enumerate(steps(3)):
        grads = torch.cat([grad * (i + 1) for i in range(17)])[:100]
        batch = ids[torch.randperm(100)]
        if repeats:
            batch[:10] = batch[step]
        for table in (first, second):
            table.push(ids, torch.zeros(100, DIM, dtype=torch.float64))  # all have a row
        first.pull(batch)
        first.push(batch, grads)
        second.push(batch, grads)
        assert torch.equal(first.pull(ids), second.pull(ids))


class TestFormulas:
    @pytest.mark.parametrize(
        ("kind", "settings", "peer", "arguments"),
        [
            ("sgd", {}, torch.optim.SGD, {}),
            ("adagrad", {"epsilon": 1e-6}, torch.optim.Adagrad, {"eps": 1e-6}),
            (
                "adagrad",
                {"epsilon": 1e-10, "initial_accumulator_value": 0.1},
                torch.optim.Adagrad,
                {"initial_accumulator_value": 0.1},
            ),
            ("adam", {"scale_epsilon": True}, torch.optim.Adam, {}),
            (
                "adam",
                {"scale_epsilon": True, "beta1": 0.7, "beta2": 0.9, "epsilon": 1e-3},
                torch.optim.Adam,
                {"betas": (0.7, 0.9), "eps": 1e-3},
            ),
        ],
    )
    @pytest.mark.parametrize("l2", [0.0, 0.3])
    def test_equal_torch_with_a_parameter_per_row(self, kind, settings, peer, arguments, l2):
        table = make(kind, settings=settings, l2=l2)
        rows = [torch.nn.Parameter(row.clone()) for row in table.pull(POOL)]
        optimizer = peer(rows, lr=0.1, weight_decay=l2, **arguments)
        for number, (picks, grads) in enumerate(steps()):
            rate = 0.1 / (1 + number)
            optimizer.zero_grad()
            for pick, grad in zip(picks.tolist(), grads, strict=True):
                row = rows[pick]
                row.grad = grad.clone() if row.grad is None else row.grad + grad
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            table.push(POOL[picks], grads, rate=rate)
        torch.testing.assert_close(table.pull(POOL), torch.stack(rows).detach(), rtol=0, atol=1e-13)

    def test_adam_with_shared_steps_is_sparse_adam(self):
        table = make("adam", settings={"shared_steps": True})
        weight = torch.nn.Parameter(table.pull(POOL).clone())
        optimizer = torch.optim.SparseAdam([weight], lr=0.1)
        for picks, grads in steps():
            weight.grad = torch.sparse_coo_tensor(
                picks[None], grads, weight.shape, check_invariants=True
            )
            optimizer.step()
            table.push(POOL[picks], grads)
        torch.testing.assert_close(table.pull(POOL), weight.detach(), rtol=0, atol=1e-13)

    @pytest.mark.parametrize("shared", [False, True])
    def test_adam_in_single_precision(self, shared):
        """The fused way of float32 against the plain one of float64."""
        beta1, beta2 = (float(torch.tensor(beta)) for beta in (0.8, 0.99))  # exact in both
        settings = {"beta1": beta1, "beta2": beta2, "epsilon": 1e-2, "shared_steps": shared}
        zeros = InitializerSpec()
        one = make("adam", settings=settings, l2=0.1, dim=16, dtype="float32", initializer=zeros)
        two = make("adam", settings=settings, l2=0.1, dim=16, initializer=zeros)
        for picks, grads in steps():
            wide = grads.repeat(1, 4) * torch.arange(1, 17)
            one.push(POOL[picks], wide.float())
            two.push(POOL[picks], wide)
        torch.testing.assert_close(one.pull(POOL).double(), two.pull(POOL), rtol=0, atol=5e-6)
        first, second = one.state_dict(), two.state_dict()
        for name in ("Moment1", "Moment2", "Beta1Pow", "Beta2Pow"):
            torch.testing.assert_close(first[name].double(), second[name], rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("l1", [0.0, 0.4])
    def test_ftrl(self, l1):
        """McMahan et al. 2013, algorithm 1, with Paddle's doubled l2."""
        table = make("ftrl", settings={"l1": l1, "l2": 0.2}, rate=0.5)
        weights, z, n = table.pull(POOL), torch.zeros(8, DIM).double(), torch.zeros(8, DIM).double()
        for picks, grads in steps():
            total = torch.zeros(8, DIM).double().index_add_(0, picks, grads)
            for pick in picks.unique().tolist():
                g = total[pick]
                sigma = ((n[pick] + g * g).sqrt() - n[pick].sqrt()) / 0.5
                z[pick] += g - sigma * weights[pick]
                n[pick] += g * g
                away = z[pick].sign() * l1 - z[pick]
                weight = away / (n[pick].sqrt() / 0.5 + 2 * 0.2)
                weights[pick] = torch.where(z[pick].abs() <= l1, torch.zeros(()).double(), weight)
            table.push(POOL[picks], grads)
        torch.testing.assert_close(table.pull(POOL), weights, rtol=0, atol=1e-8)
        assert bool((weights == 0).any()) == (l1 > 0)

    def test_l1_and_clipping(self):
        grads = torch.tensor([[3.0, -4.0, 0.0, 0.0], [0.0, 0.0, 12.0, 0.5]]).double()
        ids = POOL[:2]
        for clip, norm, expected in (
            (ClipSpec(kind="value", limit=1.0), None, grads.clamp(-1.0, 1.0)),
            (ClipSpec(kind="value", limit=2.0, low=0.0), None, grads.clamp(0.0, 2.0)),
            (ClipSpec(kind="norm", limit=1.0), None, grads / grads.norm()),
            (ClipSpec(kind="global_norm", limit=1.0), 26.0, grads / 26.0),
            (ClipSpec(kind="global_norm", limit=100.0), 26.0, grads),
        ):
            table = make(clip=clip, rate=1.0)
            before = table.pull(ids)
            table.push(ids, grads, norm=norm)
            torch.testing.assert_close(before - table.pull(ids), expected, rtol=0, atol=1e-12)
        assert table.square_norm(ids, grads) == pytest.approx(169.25)
        table = make(l1=0.5, rate=1.0)
        before = table.pull(ids)
        table.push(ids, torch.zeros_like(grads))
        torch.testing.assert_close(before - table.pull(ids), 0.5 * before.sign())

    def test_settings_are_checked(self):
        with pytest.raises(SpecError, match="no setting momentum"):
            make("adagrad", settings={"momentum": 0.9})

    def test_gradients_are_left_alone(self):
        grads = torch.ones(2, DIM).double()
        for kind in ("sgd", "adagrad", "adam", "ftrl"):
            make(kind, l2=0.1).push(POOL[:2], grads)
            assert torch.equal(grads, torch.ones(2, DIM).double())


class TestRows:
    @pytest.mark.parametrize("dim", [1, 3, 16])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("kind", ["sgd", "adagrad", "adam", "ftrl"])
    def test_the_same_rows_on_any_number_of_servers(self, kind, dtype, dim):
        final = []
        for servers in (1, 2, 3):
            tables = [make(kind, dtype=dtype, dim=dim) for _ in range(servers)]
            dice = torch.Generator().manual_seed(0)
            for _ in range(6):
                ids = torch.randint(0, 500, (777,), generator=dice)
                grads = torch.randn(777, dim, generator=dice, dtype=tables[0].dtype)
                for table, part in zip(tables, split_ids(ids, servers), strict=True):
                    table.push(ids[part], grads[part])
            ids = torch.arange(500)
            result = torch.empty(500, dim, dtype=tables[0].dtype)
            for table, part in zip(tables, split_ids(ids, servers), strict=True):
                result[part] = table.pull(ids[part])
            final.append(result)
        assert torch.equal(final[0], final[1])
        assert torch.equal(final[0], final[2])

    def test_a_pull_changes_nothing(self):
        table = make()
        first = table.pull(torch.arange(1000))
        assert len(table) == 0
        assert torch.equal(table.pull(torch.arange(1000)), first)
        assert torch.equal(make().pull(torch.tensor([7])), first[7:8])

    def test_out_is_filled(self):
        table, out = make(), torch.empty(3, DIM).double()
        assert table.pull(POOL[:3], out=out) is out
        assert torch.equal(out, table.pull(POOL[:3]))
        assert table.pull(POOL[:0]).shape == (0, DIM)

    def test_deltas_are_added_without_the_optimizer(self):
        table = make("adam")
        before = table.pull(POOL)
        table.add(POOL[[0, 0, 1]], torch.ones(3, DIM).double())
        expected = before.clone()
        expected[0] += 2.0
        expected[1] += 1.0
        torch.testing.assert_close(table.pull(POOL), expected, rtol=0, atol=1e-15)

    @pytest.mark.parametrize("kind", ["sgd", "adagrad", "adam", "momentum"])
    def test_a_push_after_a_pull_is_a_push(self, kind):
        """It uses the rows that the pull has found, for the same ids in the same order only."""
        one, two = make(kind), make(kind)
        dice = torch.Generator().manual_seed(0)
        ids = torch.arange(300)
        for number in range(8):
            batch = ids[torch.randperm(300, generator=dice)[: 200 - number % 2]]
            grads = torch.randn(len(batch), DIM, generator=dice, dtype=torch.float64)
            one.push(batch, grads)
            two.pull(batch)
            two.pull(batch.flip(0))
            two.push(batch, grads)
        assert torch.equal(one.pull(ids), two.pull(ids))

    def test_a_table_grows_over_many_blocks(self):
        table = make("adagrad", dtype="float32")
        ids = torch.arange(0, 3_000_000, 7)
        for part in ids.split(50_000):
            table.push(part, torch.ones(len(part), DIM))
        assert len(table) == len(ids)
        sample = ids[::1000]
        expected = make("adagrad", dtype="float32").pull(sample) - 0.1
        torch.testing.assert_close(table.pull(sample), expected, rtol=0, atol=1e-6)
        pieces = list(table.rows(names=("Param", "Moment")))
        assert torch.equal(torch.cat([piece[0] for piece in pieces]), ids)
        assert torch.cat([piece[1]["Moment"] for piece in pieces]).unique().tolist() == [1.0]

    def test_threads_may_share_a_table(self):
        table = make(initializer=InitializerSpec(), rate=1.0)
        ids, grads = torch.arange(2000), torch.full((2000, DIM), -1.0).double()

        def work():
            for _ in range(20):
                table.push(ids, grads)
                table.pull(ids)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert table.pull(ids).unique().tolist() == [60.0]

    @pytest.mark.parametrize(
        ("ids", "grads", "counts", "said"),
        [
            (POOL[:2], torch.ones(2, 3).double(), None, "shape \\[2, 4\\]"),
            (POOL[:2], torch.ones(2, DIM), None, "float64"),
            (POOL[:2], torch.ones(3, DIM).double(), None, "shape"),
            (POOL[:2].double(), torch.ones(2, DIM).double(), None, "int64"),
            (POOL[:2], torch.ones(2, DIM).double(), torch.ones(3).long(), "3 counts"),
            (POOL[:2], torch.ones(2, DIM).double(), torch.zeros(2).long(), "at least 1"),
        ],
    )
    def test_wrong_pushes_are_refused(self, ids, grads, counts, said):
        table = make()
        with pytest.raises((ValueError, TypeError), match=said):
            table.push(ids, grads, counts=counts)
        assert len(table) == 0


class TestState:
    @pytest.mark.parametrize("settings", [{}, {"shared_steps": True}])
    def test_a_restored_table_goes_on_alike(self, settings):
        eviction = EvictionSpec(max_unseen=3)
        whole, first, second = (
            make("adam", settings=settings, eviction=eviction) for _ in range(3)
        )
        for number, (picks, grads) in enumerate(steps()):
            whole.clock = first.clock = second.clock = number
            whole.push(POOL[picks], grads)
            (first if number < 5 else second).push(POOL[picks], grads)
            if number == 4:
                second.load_state_dict(first.state_dict())
        assert torch.equal(whole.pull(POOL), second.pull(POOL))
        assert whole.evict() == second.evict()
        assert len(whole) == len(second)

    def test_a_state_is_a_copy(self):
        table = make()
        table.push(POOL[:2], torch.ones(2, DIM).double())
        state = table.state_dict()
        before = state["Param"].clone()
        table.push(POOL[:2], torch.ones(2, DIM).double())
        assert torch.equal(state["Param"], before)

    def test_parameters_go_with_another_optimizer(self):
        plain = make("sgd")
        plain.push(POOL, torch.ones(8, DIM).double())
        other = make("adagrad")
        other.load_state_dict(plain.state_dict())
        assert torch.equal(other.pull(POOL), plain.pull(POOL))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"ids": None}, "needs 'ids'"),
            ({"ids": torch.tensor([1, 1])}, "twice"),
            ({"Param": torch.ones(2, 5).double()}, "needs 'Param' of shape"),
            ({"Param": torch.ones(2, DIM)}, "float32"),
            ({"clock": torch.tensor([-1])}, "time -1"),
            ({"score": torch.ones(2)}, "both"),
            ({"waiting_ids": torch.ones(2)}, "not yet admitted"),
        ],
    )
    def test_a_wrong_state_changes_nothing(self, changes, said):
        table = make()
        table.push(POOL[:2], torch.ones(2, DIM).double())
        before = table.pull(POOL)
        state = {**table.state_dict(), **changes}
        with pytest.raises(ValueError, match=said):
            table.load_state_dict({k: v for k, v in state.items() if v is not None})
        assert torch.equal(table.pull(POOL), before)
        assert len(table) == 2
