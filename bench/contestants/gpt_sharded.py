"""The small GPT on a group of workers, with Adam. Arguments: `alone` (workers exchange nothing),
`ddp`, `fsdp` with `2` (parameters are kept after forward) or `3`, or `fleet` with the settings of
the strategy as JSON."""

import sys

import torch
import torch.distributed as dist
from group_loop import serve_group, strategy_of
from loop import tell
from small_gpt import Block, batches, network, own_mb
from torch_step import training_step

KIND = sys.argv[1]
torch.set_num_threads(1)
if KIND == "fleet":
    from fleetx import fleet

    fleet.init(is_collective=True, strategy=strategy_of(fleet))
    model = fleet.distributed_model(network())
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=1e-3))
else:
    dist.init_process_group("gloo")
    model = network()
    if KIND == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    elif KIND == "fsdp":
        from torch.distributed.fsdp import fully_shard

        drops = sys.argv[2] == "3"
        for block in model.modules():
            if isinstance(block, Block):
                fully_shard(block, reshard_after_forward=drops)
        fully_shard(model, reshard_after_forward=None if drops else False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rank = dist.get_rank()
data = batches(rank)
step = training_step(lambda i: model(data[i % len(data)]), optimizer)
serve_group(step, 3, rank, dist.barrier)
model(data[0]).backward()  # gradients and the state of earlier steps exist
held = {
    "parameters": own_mb(model.parameters()),
    "gradients": own_mb(p.grad for p in model.parameters() if p.grad is not None),
    "state": own_mb(v for each in optimizer.state.values() for v in each.values()),
}
if rank == 0:
    tell(held_mb=held)
dist.barrier()
if KIND != "fleet":
    dist.destroy_process_group()
