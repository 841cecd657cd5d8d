"""Tensors of sequences."""

from fleetx.static.readers.lod_tensor import create_lod_tensor, create_random_int_lodtensor
