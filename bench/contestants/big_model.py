"""A model that does not fit: 4 workers, 67 million parameters, Adam. Arguments: `ddp` or `fleet`,
the settings of the strategy as JSON, and the megabytes of data that a worker may have above those
after its imports (RLIMIT_DATA); 0 for no limit. Reports the losses and the memory in MB."""

import resource
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.fsdp  # not part of the training that is measured
from group_loop import strategy_of
from loop import tell
from torch import nn

KIND, LIMIT = sys.argv[1], float(sys.argv[3])
WIDTH, BLOCKS, STEPS, BATCH = 1024, 16, 6, 8
torch.set_num_threads(1)


class Block(nn.Module):
    """Two wide layers with a residual."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        """Return the block's output."""
        return x + self.down(torch.relu(self.up(x))) / BLOCKS


def data_mb():
    """Return the private writable memory, which RLIMIT_DATA limits."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData")) / 1024


class Peak:
    """The peak memory so far, sampled between the parts of a step."""

    def __init__(self):
        self.mb, self.before = 0.0, data_mb()

    def look(self, *_):
        """Sample the memory."""
        self.mb = max(self.mb, data_mb() - self.before)


def main():
    """Train, under the limit."""
    if KIND == "fleet":
        from fleetx import fleet

        fleet.init(is_collective=True, strategy=strategy_of(fleet))
    else:
        dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    peak = Peak()
    if LIMIT:
        most = int((peak.before + LIMIT) * 2**20)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)))
    peak.look()
    for block in model:
        block.register_forward_hook(peak.look)
        block.register_full_backward_hook(peak.look)
    if KIND == "fleet":
        model = fleet.distributed_model(model)
        optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=1e-4))
    else:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    draw = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=draw)
        loss = (model(x) - x.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        peak.look()
        optimizer.step()
        peak.look()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / workers)
    if rank == 0:
        tell(losses=losses, mb=peak.mb)


if __name__ == "__main__":
    main()
    if KIND != "fleet":
        dist.destroy_process_group()
