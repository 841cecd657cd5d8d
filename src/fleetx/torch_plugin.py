"""The entry point that `import torch` calls: plain scripts under fleetrun use shared memory.

PyTorch calls the entry points of the group `torch.backends` at the end of its import. In a CPU
worker that fleetrun has started on one machine without `--backend`, `init_process_group()` without
a name then uses the backend "shm", and so do DDP and FSDP2; everywhere else nothing happens.
"""

from __future__ import annotations

from typing import Any

from fleetx.runtime import environment


def load() -> None:
    """Make shared memory the default backend for CPU tensors, if fleetrun enables it."""
    if not (environment.may_share_memory() and environment.is_one_machine()):
        return
    import torch.distributed as dist

    if dist.is_available():
        dist.Backend.register_backend("shm", _create, devices=["cpu"])
        dist.Backend.default_device_backend_map["cpu"] = "shm"


def _create(*arguments: Any) -> Any:
    from fleetx.comm import shared_memory

    return shared_memory.create_group(*arguments)
