"""Trains models whose layers, sequences and losses are divided between workers, case by case.

Each worker writes its parameters at the end of each case, as lists of numbers."""

import json
import sys
from pathlib import Path

import torch
from hybrid import OPTIMIZERS, STEPS, WIDTH, WORDS, Attention, begin, values
from torch import nn

from fleetx import fleet

BATCH, LENGTH = 8, 8


class Mlp(nn.Sequential):
    """A pair of divided layers."""

    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 4 * WIDTH), nn.Tanh(), nn.Linear(4 * WIDTH, WIDTH))


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Net(nn.Module):
    """A language model, which as a pipeline has its table twice."""

    tensor_parallel_plan = {
        "blocks.0": "split",
        "blocks.*.attention": "whole",
        "blocks.*.mlp": "whole",
        "blocks.*.norm_*": "sequence",
        "norm": "joined",
        "blocks.*.attention.out": "rowwise",
        "blocks.*.attention.*": "colwise",
        "blocks.*.mlp.0": "colwise",
        "blocks.*.mlp.2": "rowwise",
        "words": "embedding",
        "head": "gathered",
    }

    def __init__(self, *, shares):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if shares:
            self.head.weight = self.words.weight

    def pipeline_layers(self):
        return [self.words, *self.blocks, self.norm, self.head]

    def forward(self, ids):
        for layer in self.pipeline_layers():
            ids = layer(ids)
        return ids

    @staticmethod
    def loss_fn(scores, ids):
        return nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


SIZES = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# Of transformers, which compute the loss themselves: names of classes, sizes.
FAMILIES = {
    "llama": ("LlamaForCausalLM", SIZES),
    "qwen2": ("Qwen2ForCausalLM", SIZES),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": WORDS, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
        | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        | {"bos_token_id": 0, "eos_token_id": 0},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": WIDTH, "d_kv": 4, "d_ff": 16, "num_layers": 1}
        | {"num_heads": 2, "dropout_rate": 0.0, "decoder_start_token_id": 0},
    ),
}


def family(kind):
    import transformers

    name, sizes = FAMILIES[kind]
    made = getattr(transformers, name)
    return made(made.config_class(**sizes, attn_implementation="eager"))


def network(kind="tied"):
    torch.manual_seed(3)
    if kind in FAMILIES:
        return family(kind).double()
    return Net(shares=kind == "tied").double()


def batch(step, part=0, parts=1):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(WORDS, (BATCH, LENGTH), generator=generator)[part::parts].contiguous()


def train(model, optimizer):
    """Train on a worker's parts of all batches."""
    for step in range(STEPS):
        ids = batch(step, fleet.data_index(), fleet.data_num())
        if hasattr(model, "loss_fn"):
            model.train_batch((ids, ids), optimizer)
            continue
        optimizer.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step(loss=loss)


def layers(degree=2, **how):
    """Return settings of divided layers."""
    return {
        "tensor_parallel": True,
        "tensor_parallel_configs": {"tensor_parallel_degree": degree, **how},
    }


PARTS, LOSS = {"sequence_parallel": True}, {"loss_parallel": True}
SHARDS = {
    "hybrid_configs": {"mp_degree": 2, "sharding_degree": 2},
    "sharding_configs": {"stage": 3},
}
STAGES = {
    "hybrid_configs": {"mp_degree": 2, "pp_degree": 2},
    "pipeline_configs": {"accumulate_steps": 4},
}
CLIP = {"gradient_clip": True, "gradient_clip_configs": {"norm": 0.05}}
RECOMPUTE = {"recompute": True, "recompute_configs": {"checkpoints": ["Block"]}}
# As one process: settings, and the model.
CASES = {
    "parts": (layers(**PARTS), "tied"),
    "loss": (layers(**LOSS), "tied"),
    "both": (layers(**PARTS, **LOSS), "tied"),
    "both by 4": (layers(4, **PARTS, **LOSS), "tied"),
    "both, shards 3": ({**layers(**PARTS, **LOSS), **SHARDS}, "tied"),
    "both, recompute": ({**layers(**PARTS, **LOSS), **RECOMPUTE}, "tied"),
    "both, pipeline": ({**layers(**PARTS, **LOSS), **STAGES}, "apart"),
    **{kind: (layers(**PARTS, **LOSS), kind) for kind in ("llama", "qwen2")},
    **{kind: (layers(**LOSS), kind) for kind in ("gpt2", "t5")},
}


def case(settings, kind):
    begin(settings)
    model = fleet.distributed_model(network(kind))
    optimizer = fleet.distributed_optimizer(OPTIMIZERS["momentum"](model.parameters()))
    train(model, optimizer)
    return values(model)


def odd():
    """Return the error of a sequence that cannot be divided."""
    begin(layers(**PARTS))
    model = fleet.distributed_model(network())
    try:
        model(batch(0)[:, :5])
    except ValueError as error:
        return str(error)
    return ""


def main():
    folder, has_families = Path(sys.argv[1]), sys.argv[2] == "families"
    fleet.init(is_collective=True)
    cases = {name: given for name, given in CASES.items() if has_families or name not in FAMILIES}
    result = {
        "alike": {name: case(*given) for name, given in cases.items()},
        "clipped": [case({**way, **CLIP}, "tied") for way in ({}, layers(**PARTS, **LOSS))],
        "odd": odd(),
    }
    (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
