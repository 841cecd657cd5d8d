"""Tensor and pipeline parallelism with Adam. The first argument is `fleet` with the settings of the
strategy as JSON, `pipeline` or `tensor` for torch's engines by hand, or `alone`: each worker trains
the whole model."""

import sys

import torch
import torch.distributed as dist
from group_loop import serve_group, strategy_of
from layered_gpt import LAYERS, PLAN, batches, loss_of, network

KIND, BATCH, MICRO = sys.argv[1], 16, 8
torch.set_num_threads(1)


def adam(model):
    """Return the optimizer of a module."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def with_fleet():
    """Return a step of Fleet's."""
    from fleetx import fleet

    fleet.init(is_collective=True, strategy=strategy_of(fleet))
    model = fleet.distributed_model(network())
    optimizer = fleet.distributed_optimizer(adam(model))
    data = batches(BATCH)
    return lambda i: model.train_batch(data[i % len(data)], optimizer, loss_fn=loss_of)


def pipeline_by_hand():
    """Return a step of torch.distributed.pipelining, cut where Fleet cuts."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, workers = dist.get_rank(), dist.get_world_size()
    whole = network()
    own = whole[:4] if rank == 0 else whole[4:]
    optimizer = adam(own)
    stage = PipelineStage(own, rank, workers, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO, loss_fn=loss_of)
    data = batches(BATCH)

    def step(i):
        inputs, targets = data[i % len(data)]
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        else:
            losses = []
            schedule.step(target=targets, losses=losses)
            torch.stack(losses).mean().item()
        optimizer.step()

    return step


def tensor_by_hand():
    """Return a step of parallelize_module, by the same plan as Fleet's."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = network()
    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {
        f"{i}.{name.removeprefix('*.')}": styles[style]()
        for i in range(1, LAYERS + 1)
        for name, style in PLAN.items()
    }
    parallelize_module(model, mesh, plan)
    return by_hand(model)


def by_hand(model):
    """Return a step of a module that is called as a whole."""
    optimizer = adam(model)
    data = batches(BATCH)

    def step(i):
        inputs, targets = data[i % len(data)]
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


if KIND == "fleet":
    step = with_fleet()
else:
    dist.init_process_group("gloo")
    ways = {"pipeline": pipeline_by_hand, "tensor": tensor_by_hand}
    step = ways[KIND]() if KIND in ways else by_hand(network())
serve_group(step, 3, dist.get_rank(), dist.barrier)
dist.barrier()
if KIND != "fleet":
    dist.destroy_process_group()
