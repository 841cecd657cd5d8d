"""Inference with parameter servers."""

from fleetx.fleet.servers.distributed_infer import DistributedInfer
from paddle._coverage import missing

__all__ = ["DistributedInfer"]

__getattr__ = missing(__name__)
