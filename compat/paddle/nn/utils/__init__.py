"""Weight normalisation of layers."""

from fleetx.static.nn.weight_norm import remove_weight_norm, weight_norm
