"""Trains models of `transformers` and of our applications whose layers and sequences are divided.

Each worker writes its parameters at the end of each case, as lists of numbers, and the error of a
sequence that cannot be divided."""

import sys
from pathlib import Path

import torch
from divided_pairs import Pairs, refusal, values, write
from hybrid import WIDTH, WORDS
from sequence_parallel import LOSS, PARTS, SHARDS, layers
from torch import nn
from torch.nn import functional

from fleetx import fleet
from fleetx.applications.bert_module import bert_for_pretraining
from fleetx.applications.bert_sizes import BertSizes
from fleetx.applications.transformer_module import TransformerSizes, TranslationTransformer

STEPS, BATCH, LENGTH, SHORTER = 3, 8, 8, 4
LLAMA = {
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
GPT2 = {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
T5 = {"d_model": WIDTH, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
T5 |= {"decoder_start_token_id": 0}
# Of transformers: names of classes, sizes, and names of the probabilities of dropout.
FAMILIES = {
    "llama": ("LlamaForCausalLM", LLAMA, ()),
    "mistral": ("MistralForCausalLM", LLAMA, ()),
    "qwen2": ("Qwen2ForCausalLM", LLAMA, ()),
    "gpt2": ("GPT2LMHeadModel", GPT2, ("resid_pdrop", "embd_pdrop", "attn_pdrop")),
    "t5": ("T5ForConditionalGeneration", T5, ("dropout_rate",)),
    "t5 gated": (
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu"},
        ("dropout_rate",),
    ),
}


class Norm(nn.Module):
    """The norm of Llama and T5, which compute it in single precision whatever they are given."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def family(kind, dropout):
    import transformers

    name, sizes, probabilities = FAMILIES[kind]
    made = getattr(transformers, name)
    drops = dict.fromkeys(probabilities, dropout)
    model = made(made.config_class(vocab_size=WORDS, **sizes, **drops))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if hasattr(child, "variance_epsilon"):
                setattr(parent, name, Norm(child))
    return model


def bert(dropout):
    sizes = {"words": WORDS, "hidden": WIDTH, "layers": 2, "heads": 4, "inner": 16}
    return bert_for_pretraining(BertSizes(**sizes, positions=LENGTH, dropout=dropout))


def translation(dropout):
    sizes = {"words": WORDS, "width": WIDTH, "heads": 2, "inner": 16, "layers": 2}
    return TranslationTransformer(TransformerSizes(**sizes, longest=LENGTH, dropout=dropout))


OWN = {"bert": bert, "translation": translation}


# Dropout that is not drawn as by one process: masks of a worker's own heads and features, and those
# of the outputs of nn.MultiheadAttention, which one process draws in the order of its transposed
# memory.
DRAWN_OTHERWISE = (
    "attention.self.dropout",
    "DenseReluDense.dropout",
    "encoder.layers.0.dropout1",
    "encoder.layers.1.dropout1",
    *(f"decoder.layers.{block}.dropout{i}" for block in (0, 1) for i in (1, 2)),
)


def network(kind, dropout=0.0):
    torch.manual_seed(3)
    made = OWN[kind](dropout) if kind in OWN else family(kind, dropout)
    for name, module in made.named_modules():
        if name.endswith(DRAWN_OTHERWISE) or (".layers." in name and name.endswith(".dropout")):
            module.p = 0.0
    return made.double()


def batch(step, part=0, parts=1, length=LENGTH, shorter=SHORTER):
    """Return sequences, a mask of their padding, and shorter ones."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(1, WORDS, (BATCH, length + shorter), generator=generator)
    kept = torch.randint(3, length + 1, (BATCH, 1), generator=generator)
    mask = (torch.arange(length) < kept).long()
    return tuple(
        each[part::parts].contiguous() for each in (ids[:, :length], mask, ids[:, length:])
    )


def loss_of(kind, model, ids, mask, shorter):
    if kind == "bert":
        segments = torch.arange(ids.shape[1]).expand_as(ids) // 4
        return model(
            ids, mask, segments, labels=ids.flip(1), next_sentence_label=shorter[:, 0] % 2
        ).loss
    if kind == "translation":
        padding = mask == 0
        return model.loss(model(ids, shorter, padding), shorter.flip(1))
    if kind.startswith("t5"):
        return model(ids, mask, labels=shorter).loss
    scores = model(ids, attention_mask=mask).logits
    return functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def train(kind, model, optimizer, part=0, parts=1):
    """Train on a worker's parts of all batches; return the loss of a batch after that."""
    for step in range(STEPS):
        torch.manual_seed(step)  # all draw what one process draws
        optimizer.zero_grad()
        loss_of(kind, model, *batch(step, part, parts)).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return loss_of(kind, model, *batch(STEPS)).item()


# As one process: settings, the model, and the probability of dropout. Copies of a model drop apart.
LLAMAS = ("llama", "mistral", "qwen2")
HARD = ("bert", "gpt2", "t5", "translation")
CASES = {
    **{f"{kind}, loss": (layers(**PARTS, **LOSS), kind, 0.0) for kind in LLAMAS},
    **{kind: (layers(**PARTS), kind, 0.0) for kind in HARD},
    **{f"{kind}, loss only": (layers(**LOSS), kind, 0.0) for kind in ("gpt2", "t5")},
    **{f"{kind} by 4, dropout": (layers(4, **PARTS), kind, 0.3) for kind in HARD},
    "gpt2, loss": (layers(**PARTS, **LOSS), "gpt2", 0.0),
    "t5 gated, loss": (layers(**PARTS, **LOSS), "t5 gated", 0.0),
    "bert, shards 3": ({**layers(**PARTS), **SHARDS}, "bert", 0.0),
    "translation, whole sequences": (layers(), "translation", 0.0),
}


def case(settings, kind, dropout):
    model, optimizer = Pairs(lambda _: network(kind, dropout), train).make(settings, "momentum")
    loss = train(kind, model, optimizer, fleet.data_index(), fleet.data_num())
    return {"values": values(model), "loss": loss}


def odd(kind, **lengths):
    """Return the error of sequences that cannot be divided."""
    model, _ = Pairs(lambda _: network(kind), train).make(layers(**PARTS), "momentum")
    return refusal(loss_of, kind, model, *batch(0, **lengths))


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    result = {
        "alike": {name: case(*given) for name, given in CASES.items()},
        "odd": {kind: odd(kind, length=5) for kind in HARD},
        "odd target": {kind: odd(kind, shorter=3) for kind in ("t5", "translation")},
    }
    write(folder, result)


if __name__ == "__main__":
    main()
