"""Tensors of sequences."""

from fleetx.static.readers.lod_tensor import create_lod_tensor, create_random_int_lodtensor
from paddle._coverage import missing

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]

__getattr__ = missing(__name__)
