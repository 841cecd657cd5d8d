"""The random states of a process: Python's, NumPy's, torch's, and those of its devices."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

_DEVICES = ("cuda", "xpu")


def capture() -> dict[str, Any]:
    """Return all random states as tensors, numbers and containers of them."""
    numpy_state: Any = np.random.get_state(legacy=False)
    return {
        "python": random.getstate(),
        "numpy": {
            "name": numpy_state["bit_generator"],
            "key": torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
            "position": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "devices": {
            name: list(getattr(torch, name).get_rng_state_all())
            for name in _DEVICES
            if getattr(torch, name).is_available()
        },
    }


def restore(state: dict[str, Any]) -> None:
    """Restore what `capture` returned."""
    random.setstate(state["python"])
    found = state["numpy"]
    np.random.set_state(
        {
            "bit_generator": found["name"],
            "state": {
                "key": found["key"].numpy().astype(np.uint32),
                "pos": found["position"],
            },
            "has_gauss": found["has_gauss"],
            "gauss": found["gauss"],
        }
    )
    torch.set_rng_state(state["torch"])
    for name, states in state["devices"].items():
        module = getattr(torch, name)
        if not module.is_available() or module.device_count() != len(states):
            raise ValueError(
                f"the checkpoint has the random states of {len(states)} {name} device(s), and "
                f"this process has {module.device_count() if module.is_available() else 0}: "
                "resume with as many, or load it with exact=False."
            )
        module.set_rng_state_all(states)
