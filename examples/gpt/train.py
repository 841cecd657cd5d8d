"""Train a small GPT on the bytes of a text, on one worker or on many.

    python examples/gpt/train.py
    fleetrun --nproc_per_node 2 examples/gpt/train.py --sharding 3
    fleetrun --nproc_per_node 2 examples/gpt/train.py --tensor_parallel 2
    fleetrun --nproc_per_node 4 examples/gpt/train.py --sharding 3 --sharding_degree 2 --localsgd 16

Without --localsgd and --amp, the losses are the same in all of them but for rounding.
"""

import argparse
from pathlib import Path
from pydoc_data import topics

import torch
from model import Gpt
from torch.nn import functional

from fleetx import fleet


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Train a small GPT.")
    parser.add_argument("--text", help="a text file; without it, Python's own help pages")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="of all workers together")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--sharding", type=int, default=0, metavar="STAGE")
    parser.add_argument("--sharding_degree", type=int, default=0, help="workers per copy")
    parser.add_argument("--tensor_parallel", type=int, default=1, metavar="DEGREE")
    parser.add_argument("--localsgd", type=int, default=0, metavar="STEPS", help="between copies")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--save", help="a folder for checkpoints, from which training resumes")
    return parser.parse_args()


def make_strategy(options: argparse.Namespace) -> fleet.DistributedStrategy:
    """Return what the options switch on."""
    strategy = fleet.DistributedStrategy()
    if options.sharding:
        strategy.sharding = True
        strategy.sharding_configs = {"stage": options.sharding}
        if options.sharding_degree:
            strategy.sharding_configs = {"sharding_degree": options.sharding_degree}
    if options.tensor_parallel > 1:
        strategy.tensor_parallel = True
        strategy.tensor_parallel_configs = {"tensor_parallel_degree": options.tensor_parallel}
    if options.localsgd:
        strategy.localsgd = True
        strategy.localsgd_configs = {
            "k_steps": options.localsgd,
            "outer_momentum": 0.9,
            "outer_lr": 0.7,
            "outer_nesterov": True,
        }
    if options.recompute:
        strategy.recompute = True
        strategy.recompute_configs = {"checkpoints": ["Block"]}
    if options.amp:
        strategy.amp = True
        strategy.amp_configs = {"dtype": "bfloat16"}
    return strategy


def read_text(options: argparse.Namespace) -> torch.Tensor:
    """Return the bytes of the text."""
    text = Path(options.text).read_text() if options.text else "\n".join(topics.topics.values())
    return torch.tensor(list(text.encode()), dtype=torch.long)


def main() -> None:
    """Train."""
    options = read_options()
    fleet.init(is_collective=True, strategy=make_strategy(options))
    torch.manual_seed(0)
    text = read_text(options)
    model = fleet.distributed_model(Gpt(256, options.length, options.width, options.blocks))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    optimizer = fleet.distributed_optimizer(optimizer)
    first = 0
    if options.save and Path(options.save).exists():
        state = fleet.load_checkpoint(options.save, model=model, optimizer=optimizer)
        first = state["step"]
    if fleet.is_first_worker():
        fleet.explain()
    for step in range(first, options.steps):
        # All workers draw the same places; those with a part of one copy take the same of them.
        draw = torch.Generator().manual_seed(step)
        places = torch.randint(len(text) - options.length - 1, (options.batch,), generator=draw)
        places = places[fleet.data_index() :: fleet.data_num()]
        batch = torch.stack([text[place : place + options.length + 1] for place in places])
        scores = model(batch[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            total = float(fleet.util.all_reduce(loss.item())) / fleet.worker_num()
            print(f"step {step + 1}: loss {total:.4f}", flush=True)
    if options.save:
        fleet.save_checkpoint(options.save, model=model, optimizer=optimizer, step=options.steps)


if __name__ == "__main__":
    main()
