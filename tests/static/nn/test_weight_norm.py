"""Weight normalisation of layers: values, gradients and removal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_program import Built

from fleetx import static
from fleetx.static import nn
from fleetx.static.nn.weight_norm import remove_weight_norm, weight_norm

X = np.random.default_rng(3).standard_normal((2, 3, 4, 4)).astype("float32")


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("dim", [0, 1, 3, -2, None])
def test_values_and_gradients(dim: int | None) -> None:
    def build(x):
        plain = nn.Conv2D(3, 5, 2)
        made = weight_norm(nn.Conv2D(3, 5, 2, bias_attr=False), dim=dim)
        build.layers = plain, made
        assert sorted(name for name, _ in made.named_parameters()) == ["weight_g", "weight_v"]
        out = made(x)
        parts = [made.weight_v, made.weight_g]
        return [out, *static.gradients([out * out], parts), *parts]

    built = Built(build, {"x": X})
    out, v_grad, g_grad, v, g = built.run()
    layer = torch.nn.Conv2d(3, 5, 2, bias=False)
    layer.weight.data = torch.from_numpy(v)
    theirs = torch.nn.utils.weight_norm(layer, dim=dim)
    expected = theirs(torch.from_numpy(X))
    (expected * expected).sum().backward()
    np.testing.assert_allclose(out, expected.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(v_grad, theirs.weight_v.grad.numpy(), atol=1e-4)
    np.testing.assert_allclose(
        g_grad, theirs.weight_g.grad.numpy().reshape(-1), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(g, theirs.weight_g.detach().numpy().reshape(-1), rtol=1e-5)


def test_removal_and_wrong_uses() -> None:
    with static.program_guard(static.Program(), static.Program()):
        layer = nn.Linear(3, 2)
        weight = layer.weight
        assert remove_weight_norm(weight_norm(layer)) is layer
        assert layer.weight is weight
        assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]
        with pytest.raises(ValueError, match="weight_norm was not applied to 'weight' of Linear"):
            remove_weight_norm(layer)
        weight_norm(layer)
        with pytest.raises(RuntimeError, match="already been applied to 'weight' of this layer"):
            weight_norm(layer)
        with pytest.raises(ValueError, match="Linear has no parameter 'kernel' for weight_norm"):
            weight_norm(layer, "kernel")
        with pytest.raises(ValueError, match=r"within \[-1, 1\), but is 1"):
            weight_norm(layer, "bias", 1)
