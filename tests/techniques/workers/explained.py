"""Trains divided models and measures what `fleet.explain()` says: the bytes that arrive over TCP in
a step, and the memory of activations, counted here from the tensors that autograd saves."""

import sys
from pathlib import Path

import torch
from divided_pairs import MERGE, OPTIMIZERS, RECOMPUTE, begin, nbytes, write
from hybrid import WIDTH
from sequence_parallel import GATHERING, LOSS, PARTS, REPEATED, Net, layers
from sharding import Block, received
from torch import nn

from fleetx import fleet

BATCH, LENGTH, STEPS = 64, 32, 4


def pipeline(stages=2, **configs):
    return {
        "hybrid_configs": {"pp_degree": stages},
        "pipeline_configs": {"accumulate_steps": 4, **configs},
    }


def degrees(**degrees):
    return {"hybrid_configs": {f"{axis}_degree": n for axis, n in degrees.items()}}


FOUR = {"pipeline_configs": {"accumulate_steps": 4}}
JOINED = {"joined_batches": True}
SHARDS = {stage: {"sharding": True, "sharding_configs": {"stage": stage}} for stage in (1, 2, 3)}
# By the number of workers: settings and model. In a pipeline, the first and the last layer have
# tables of their own; where gradients and parameters are sent, headers of messages are less than
# 5 % of wide layers only.
CASES = {
    2: {
        "copies": ({}, "wide"),
        "layers": (layers(), "tied"),
        "sequences": (layers(**PARTS), "tied"),
        "losses": (layers(**LOSS), "tied"),
        "both": (layers(**PARTS, **LOSS), "tied"),
        "both, recompute": ({**layers(**PARTS, **LOSS), **RECOMPUTE}, "tied"),
        "repeated": (layers(**PARTS, plan=REPEATED), "tied"),
        "layers that gather": (layers(**PARTS, plan=GATHERING), "tied"),
        "joined": ({**layers(), "hybrid_configs": {"mp_degree": 2, **JOINED}}, "tied"),
        "shards 1": (SHARDS[1], "wide"),
        "shards 2": (SHARDS[2], "wide"),
        "shards 3": (SHARDS[3], "wide"),
        "stages": (pipeline(), "apart"),
        "stages, all forward first": (pipeline(schedule_mode="F-then-B"), "apart"),
        "stages, interleaved": (pipeline(schedule_mode="VPP"), "apart"),
        "stages, zero bubble": (pipeline(schedule_mode="ZBVPP"), "apart"),
        "stages, recompute": ({**pipeline(), **RECOMPUTE}, "apart"),
        "stages, joined": ({**FOUR, "hybrid_configs": {"pp_degree": 2, **JOINED}}, "apart"),
    },
    4: {
        "layers by 4": (layers(4), "tied"),
        "sequences by 4": (layers(4, **PARTS), "tied"),
        "layers x copies": (degrees(mp=2, dp=2), "tied"),
        "layers x copies, merge": ({**degrees(mp=2, dp=2), **MERGE}, "tied"),
        "layers x stages": ({**degrees(mp=2, pp=2), **FOUR}, "apart"),
        "sequences x stages": (
            {**layers(**PARTS), **degrees(mp=2, pp=2), **FOUR},
            "apart",
        ),
        "stages x copies": ({**degrees(pp=2, dp=2), **FOUR}, "apart"),
        "4 stages": (pipeline(4), "apart"),
        "layers x shards 3": ({**SHARDS[3], **degrees(mp=2, sharding=2)}, "tied"),
        "shards 2 x copies": ({**SHARDS[2], **degrees(sharding=2, dp=2)}, "wide"),
        "shards 3 x copies": ({**SHARDS[3], **degrees(sharding=2, dp=2)}, "wide"),
        "stages x shards 1": ({**SHARDS[1], **degrees(pp=2, sharding=2), **FOUR}, "wide"),
        "stages x shards 2": ({**SHARDS[2], **degrees(pp=2, sharding=2), **FOUR}, "wide"),
        "stages x shards 3": ({**SHARDS[3], **degrees(pp=2, sharding=2), **FOUR}, "wide"),
    },
}


def network(kind):
    torch.manual_seed(3)
    if kind != "wide":
        return Net(shares=kind == "tied").double()
    model = nn.Sequential(*(Block(64) for _ in range(4)))
    model.loss_fn = lambda outputs, _: outputs.square().mean()
    return model


def batch(step, kind):
    generator = torch.Generator().manual_seed(step)
    whole = torch.randint(11, (BATCH, LENGTH), generator=generator)
    if kind == "wide":
        whole = torch.randn(BATCH, 64, generator=generator)
    return whole[fleet.data_index() :: fleet.data_num()].contiguous()


class Saved:
    """The tensors that autograd saves while a model runs, without parameters."""

    def __init__(self):
        self.storages = {}

    def pack(self, tensor):
        base = tensor if tensor._base is None else tensor._base
        if not isinstance(base, torch.nn.Parameter):
            own = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            if hasattr(own, "wait"):
                own = own.wait()
            self.storages[own.untyped_storage().data_ptr()] = own
        return tensor

    def bytes(self):
        return sum(own.untyped_storage().nbytes() for own in self.storages.values())


def saved_by(model, inputs):
    """Return the bytes that a forward pass keeps for backward."""
    found = Saved()
    with torch.autograd.graph.saved_tensors_hooks(found.pack, lambda kept: kept):
        model(inputs)
    return found.bytes()


def saved_by_micro_batch(model, kind):
    """Return the bytes that the only stage of this worker keeps of one of four micro-batches."""
    layers = list(model.children() if kind == "wide" else model.pipeline_layers())
    own = [each for each in layers if any(p.numel() for p in each.parameters())]
    inputs = batch(0, kind).chunk(4)[0]
    if own[0] is not layers[0]:  # what the stage before returns
        shape = inputs.shape if kind == "wide" else (*inputs.shape, WIDTH)
        dtype = next(own[0].parameters()).dtype
        inputs = torch.randn(shape, dtype=dtype, requires_grad=True)
    # Views of the batch share its memory.
    shared = inputs.untyped_storage().nbytes() if inputs._base is not None else 0
    return [saved_by(nn.Sequential(*own), inputs) - shared, shared]


def ours(model):
    """Return how many hooks of ours a model has that count activations."""
    modules = "fleetx.step.activations", "fleetx.techniques.tensor_parallel_traffic"
    hooks = [
        hook
        for module in model.modules()
        for each in (module._forward_pre_hooks, module._forward_hooks)
        for hook in each.values()
    ]
    return sum(hook.__module__ in modules for hook in hooks)


def case(settings, kind):
    begin(settings)
    model = fleet.distributed_model(network(kind))
    optimizer = fleet.distributed_optimizer(OPTIMIZERS["adamw"](model.parameters()))
    before, hooks = fleet.explain(), [ours(model)]
    for step in range(-2, STEPS):
        if step == 0:
            fleet.barrier_worker()
            start = received()
        inputs = batch(step + 2, kind)
        model.train_batch((inputs, inputs), optimizer)
        hooks.append(ours(model))
    fleet.barrier_worker()
    arrived = (received() - start) / STEPS
    explained = fleet.explain()
    trained = [p for p in model.parameters() if p.requires_grad]
    state = [v for each in optimizer.state.values() for v in each.values()]
    return {
        "received": arrived,
        "said": explained.bytes_sent,
        "messages": [[*each.axes, each.what, each.bytes_sent] for each in explained.messages],
        "before": str(before),
        "held before": vars(before.held),
        "held": vars(explained.held),
        "table": str(explained),
        "parameters": sum(map(nbytes, [*model.parameters(), *model.buffers()])),
        "gradients": sum(nbytes(p.grad) for p in trained if p.grad is not None),
        "state": sum(map(nbytes, state)),
        "activations": saved_by_micro_batch(model, kind)
        if model.batches is not None
        else saved_by(model, batch(0, kind)),
        "hooks": hooks,
        "is cut": model.batches is not None,
    }


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    cases = CASES[fleet.worker_num()]
    write(folder, {name: case(*given) for name, given in cases.items()})


if __name__ == "__main__":
    main()
