"""Families of op cases, one file per field; importing the package registers all of them."""

from op_families import (
    later,
    metrics,
    paddle_errors,
    random,
    rare,
    recurrent,
    regions,
    tables,
    updates,
)

__all__ = [
    "later",
    "metrics",
    "paddle_errors",
    "random",
    "rare",
    "recurrent",
    "regions",
    "tables",
    "updates",
]
