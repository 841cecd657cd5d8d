"""The weights of a trained model for other programs: one safetensors file under the names of the
plain module, or the folder of Hugging Face's models.

A model that is divided between workers is gathered first, so that what is written does not depend
on how it was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from fleetx.checkpoint.atomic import write_bytes

_SUFFIX = ".safetensors"


def check_target(module: Any, path: Path) -> None:
    """Reject a target that is neither a file nor a folder that the module can write."""
    if path.suffix != _SUFFIX and not hasattr(module, "save_pretrained"):
        raise ValueError(
            f"fleet.save_weights would write {str(path)!r}, but {type(module).__name__} has no "
            f"save_pretrained that writes a folder: name a file that ends with {_SUFFIX}."
        )


def write(module: Any, state: Mapping[str, Any], path: Path) -> None:
    """Write whole weights to a file, or to a folder with the model's configuration."""
    if path.suffix != _SUFFIX:
        module.save_pretrained(str(path), state_dict=dict(state), safe_serialization=True)
        return
    # Copies: safetensors refuses names that share memory, and modules expect all names.
    tensors = {
        name: value.detach().cpu().clone().contiguous()
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }
    write_bytes(path, save(tensors, metadata={"format": "pt"}))
