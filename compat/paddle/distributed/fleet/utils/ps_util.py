"""Inference with parameter servers."""

from fleetx.fleet.servers.distributed_infer import DistributedInfer
