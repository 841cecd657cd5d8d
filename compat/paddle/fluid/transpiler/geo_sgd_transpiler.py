"""Dividing programs for geo training."""

from fleetx.paddle_rules.transpiler import GeoSgdTranspiler
