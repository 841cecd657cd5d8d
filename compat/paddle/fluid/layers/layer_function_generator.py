"""Layers made from op types, and docstrings made from them."""

from fleetx.static.building.generated_layers import (
    autodoc,
    deprecated,
    generate_activation_fn,
    generate_layer_fn,
    templatedoc,
)
