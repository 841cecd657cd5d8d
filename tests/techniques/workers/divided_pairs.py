"""What scripts that train divided models share: pairs of a model and an optimizer, how they are
made, saved and resumed, and what a worker holds of them."""

import copy
import json

import torch

from fleetx import fleet

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}
STEPS = 4
SAVED_AFTER = 2
"""The steps after which a checkpoint is saved."""
MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}
CLIP = {"gradient_clip": True, "gradient_clip_configs": {"norm": 0.05}}
RECOMPUTE = {"recompute": True, "recompute_configs": {"checkpoints": ["Block"]}}
AMP = {"amp": True, "amp_configs": {"dtype": "bfloat16"}}


def local(k=1, **more):
    """Return settings of local steps."""
    return {"localsgd": True, "localsgd_configs": {"k_steps": k, "begin_step": 0, **more}}


def values(module):
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, copy.deepcopy(value))
    fleet.init(is_collective=True, strategy=strategy)


def refusal(call, *args):
    """Return the sentence by which a call is refused; nothing if it is not."""
    try:
        call(*args)
    except ValueError as error:
        return str(error)
    return ""


def write(folder, result):
    """Write what this worker found."""
    (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


def held(model, optimizer):
    """What a worker holds after an update, and what the step was said to cost."""
    trained = [p for p in model.parameters() if p.requires_grad]
    state = [v for each in optimizer.state.values() for k, v in each.items() if k != "step"]
    explained = fleet.explain()
    return {
        "held": sum(
            map(nbytes, [*trained, *(p.grad for p in trained if p.grad is not None), *state])
        ),
        "whole": 4 * sum(p.numel() * p.element_size() for p in trained),
        "said": sum(row.memory or 0.0 for row in explained.rows),
        "table": str(explained),
    }


def nbytes(tensor):
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.numel() * local.element_size()


class Pairs:
    """Pairs of one kind of model: `network(dtype)` makes it, `train(model, optimizer, steps)`
    trains it on this worker's samples."""

    def __init__(self, network, train):
        self.network, self.train = network, train

    def make(self, settings, kind, dtype=torch.float64, *, first="model"):
        """Return model and optimizer, made in one of the orders that scripts have."""
        begin(settings)
        module = self.network(dtype)
        if first == "optimizer":
            optimizer = fleet.distributed_optimizer(OPTIMIZERS[kind](module.parameters()))
            return fleet.distributed_model(module), optimizer
        model = fleet.distributed_model(module)
        return model, fleet.distributed_optimizer(OPTIMIZERS[kind](model.parameters()))

    def case(self, settings, kind, dtype=torch.float64, **how):
        """Return the parameters after training."""
        model, optimizer = self.make(settings, kind, dtype, **how)
        self.train(model, optimizer)
        return values(model)

    def saved(self, settings, folder, *, first="model", look=lambda model: {}):
        """Save, train on, load into a new pair, train on again: both must end alike.

        The new pair is made in the order that `first` says. What `look` sees in the model at the
        end is returned, too.
        """
        rest = range(SAVED_AFTER, STEPS)
        model, optimizer = self.make(settings, "adamw")
        self.train(model, optimizer, range(SAVED_AFTER))
        memory = held(model, optimizer)
        fleet.save_checkpoint(folder, model=model, optimizer=optimizer, epoch=3)
        self.train(model, optimizer, rest)
        seen = look(model)
        return {
            "memory": memory,
            "straight": values(model),
            "resumed": self.resumed(settings, folder, first=first),
            **seen,
        }

    def resumed(self, settings, folder, **how):
        """Return the parameters after going on from a checkpoint."""
        model, optimizer = self.make(settings, "adamw", **how)
        fleet.load_checkpoint(folder, model=model, optimizer=optimizer)
        self.train(model, optimizer, range(SAVED_AFTER, STEPS))
        return values(model)
