"""Collective training written into programs by hand."""

from fleetx.paddle_rules.collective_transpiler import GradAllReduce, LocalSGD
