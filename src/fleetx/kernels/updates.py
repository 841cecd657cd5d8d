"""All update rules, by name."""

from __future__ import annotations

# Importing each registers its rules.
from fleetx.kernels import adam, adaptive, descent, layerwise  # noqa: F401
from fleetx.kernels.update_rule import RULES, UpdateRule

__all__ = ["RULES", "UpdateRule"]
