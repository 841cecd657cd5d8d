"""LARS and LAMB: PyTorch optimizers and programs here against the ops of real Paddle, 20 steps.

Paddle 1.8.5 has no bias correction in LAMB and no epsilon in LARS; the functions have both forms.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from engines import Engine, ours
from torch import nn

from conftest import Comparison
from fleetx.kernels.layerwise import lamb_update, lars_update
from fleetx.techniques.lamb import Lamb
from fleetx.techniques.lars import Lars


def inputs(path: Path) -> dict[str, Any]:
    """Write parameters, gradients and learning rates, and return them."""
    data = np.random.default_rng(0)
    given = {"w": data.standard_normal((17, 9)) * 0.3, "b": data.standard_normal(9) * 0.1}
    for name in ("w", "b"):
        given["grad_" + name] = data.standard_normal((20, *given[name].shape)) * 0.2
    given["rates"] = 0.1 / np.arange(1, 21)
    single = {name: value.astype("float32") for name, value in given.items()}
    np.savez(path, **single)
    return single


def by_optimizer(kind: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return what the PyTorch optimizer makes of the parameters, step by step."""
    parameters = {n: nn.Parameter(torch.tensor(given[n])) for n in ("w", "b")}
    optimizer: torch.optim.Optimizer
    if kind == "lars":
        optimizer = Lars(
            parameters.items(), lars_coeff=0.02, lars_weight_decay=0.1, epsilon=0.01,
            exclude_from_weight_decay=["b"],
        )  # fmt: skip
    else:
        optimizer = Lamb(
            parameters.items(), betas=(0.9, 0.99), eps=1e-3, lamb_weight_decay=0.1,
            exclude_from_weight_decay=["b"],
        )  # fmt: skip
    found = {}
    for t in range(20):
        optimizer.param_groups[0]["lr"] = float(given["rates"][t])
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(given["grad_" + name][t])
        optimizer.step()
        for name, parameter in parameters.items():
            found[f"{kind} {name} {t}"] = parameter.detach().numpy().copy()
    return found


def by_functions(kind: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the same by the formulas of 1.8.5."""
    found = {}
    for name in ("w", "b"):
        p = [torch.tensor(given[name])]
        first, second = [torch.zeros_like(p[0])], [torch.zeros_like(p[0])]
        for t in range(20):
            g, lr = [torch.tensor(given["grad_" + name][t])], float(given["rates"][t])
            if kind == "lars":
                lars_update(p, g, first, lr, mu=0.9, coeff=0.02, decay=0.1, epsilon=None)
            else:
                decay = 0.1 if name == "w" else 0.0
                lamb_update(
                    p, g, first, second, lr, beta1=0.9, beta2=0.99, epsilon=1e-3, decay=decay
                )
            found[f"{kind} {name} {t}"] = p[0].numpy().copy()
    return found


def test_same_parameters_after_each_step(
    paddle: Engine, compare: Comparison, tmp_path: Path
) -> None:
    given = inputs(tmp_path / "given.npz")
    figures = []
    for engine in (paddle, ours(paddle.api)):
        path = tmp_path / f"{engine.name}.npz"
        engine.run("run_large_batch.py", tmp_path / "given.npz", path)
        with np.load(path) as file:
            figures.append(dict(file))
    eager = by_optimizer if paddle.api == "static" else by_functions
    torch_figures = {**eager("lars", given), **eager("lamb", given)}
    assert len(figures[0]) == 2 * 2 * 20
    for key, wanted in figures[0].items():
        kind = key.split()[0]
        compare.check(kind, figures[1][key], wanted, 1e-6, case="program")
        compare.check(kind, torch_figures[key], wanted, 1e-6, case="PyTorch optimizer")
