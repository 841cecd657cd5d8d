"""Utilities of fleet besides training."""

from paddle.distributed.fleet.utils import fs
from paddle.distributed.fleet.utils.fs import HDFSClient, LocalFS
