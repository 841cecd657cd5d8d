"""Techniques: each changes stages of the training step; one file each.

A module of this folder that registers a technique is all it takes: importing the package imports
every module, and those of packages with the entry point `fleetx.techniques`.
"""

import importlib
import pkgutil

from fleetx.step import registry

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
registry.load_entry_points()
