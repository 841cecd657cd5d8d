"""A clip with state trains alike in modules and programs, and its state is saved in both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from test_slots import forget

from fleetx import fleet
from fleetx import static as fluid
from fleetx.step.named_stages import NamedClip
from fleetx.step.stages import Stage
from fleetx.step.technique import NoSettings, Order, Row, Sizes, Technique

pytestmark = pytest.mark.usefixtures("fresh_fleet", "running_norm")
STEPS = 6


class RunningNorm(NamedClip):
    """Bounds the norm of each gradient by the mean of those before it."""

    def first_state(self, tensors: Any) -> dict[str, torch.Tensor]:
        return {name + "@NORMS": torch.zeros(2) for name in tensors}

    def clip(self, parameters: Any, state: Any) -> None:
        for name, parameter in parameters.items():
            norms, norm = state[name + "@NORMS"], parameter.grad.norm()
            if norms[1]:
                parameter.grad.mul_((norms[0] / norms[1] / norm).clamp(max=1.0))
            norms += torch.stack([norm, torch.ones(())])


class RunningNormTechnique(Technique[NoSettings]):
    name = "running_norm"
    order = Order.CLIP
    wraps = frozenset({Stage.UPDATE})

    def change(self, step: Any) -> None:
        step.clip = RunningNorm()

    def rows(self, sizes: Sizes) -> list[Row]:
        return [Row(stage=Stage.UPDATE, technique=self.name)]


@pytest.fixture(name="running_norm")
def _running_norm() -> Iterator[None]:
    fleet.register(RunningNormTechnique)
    yield
    forget("running_norm")


def strategy(**switches: Any) -> Any:
    made = fleet.DistributedStrategy()
    for name, value in {"running_norm": True, **switches}.items():
        setattr(made, name, value)
    return made


def batches() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [
        (10.0 ** (i % 3)) * random.standard_normal((4, 3)).astype("float32") for i in range(STEPS)
    ]


def first_weights() -> np.ndarray:
    return np.linspace(-1, 1, 3, dtype="float32").reshape(3, 1)


def module_weights(wanted: Any, break_at: int | None = None) -> np.ndarray:
    def fresh() -> tuple[Any, Any]:
        fleet.init(is_collective=True, strategy=wanted)
        model = torch.nn.Linear(3, 1, bias=False)
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(first_weights().T))
        made = torch.optim.SGD(model.parameters(), lr=0.1)
        return fleet.distributed_model(model), fleet.distributed_optimizer(made)

    model, optimizer = fresh()
    for number, batch in enumerate(batches()):
        if number == break_at:
            saved = model.state_dict(), optimizer.state_dict()
            assert saved[1]["fleet"]["clip"]["state"]["weight@NORMS"][1] > 0
            model, optimizer = fresh()
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        optimizer.minimize((model(torch.from_numpy(batch)) ** 2).mean())
    found: np.ndarray = model.weight.detach().numpy().T.copy()
    return found


def program_weights(wanted: Any) -> tuple[np.ndarray, np.ndarray]:
    fleet.init(is_collective=True)
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [3])
        out = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr(name="w"), bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square(out))
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), wanted).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    scope.find_var("w").get_tensor().set(first_weights(), fluid.CPUPlace())
    for batch in batches():
        exe.run(main, feed={"x": batch}, fetch_list=[loss], scope=scope)
    return tuple(np.array(scope.find_var(name).get_tensor()) for name in ("w", "w@NORMS"))  # type: ignore


@pytest.mark.parametrize("k_steps", [1, 2])
def test_a_clip_with_state_trains_alike_in_modules_and_programs(k_steps: int) -> None:
    switches = {"gradient_merge": k_steps > 1, "gradient_merge_configs": {"k_steps": k_steps}}
    module = module_weights(strategy(**switches))
    weights, norms = program_weights(strategy(**switches))
    np.testing.assert_allclose(module, weights, rtol=1e-5)
    assert norms[1] == STEPS / k_steps
    assert not np.allclose(module, module_weights(strategy(**switches, running_norm=False)))


def test_its_state_is_saved() -> None:
    np.testing.assert_array_equal(
        module_weights(strategy()), module_weights(strategy(), break_at=3)
    )


def test_an_optimizer_that_clips_already_is_refused() -> None:
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    fleet.init(is_collective=True)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [3]), 1))
        before = len(loss.block.ops)
        optimizer = fluid.optimizer.SGD(0.1, grad_clip=clip)
        with pytest.raises(
            ValueError, match="has a grad_clip, and .* on running_norm, which clips"
        ):
            fleet.distributed_optimizer(optimizer, strategy()).minimize(loss)
        assert len(loss.block.ops) == before
