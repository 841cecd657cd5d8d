"""A small BERT of Hugging Face transformers, built from a config; rank 0 writes losses and
parameters as JSON, and those of a copy that PyTorch trains on the whole batches."""

import copy
import json
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification

from fleetx import fleet

options = json.loads(sys.argv[1])
fleet.init(is_collective=True)
torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
config = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=3,
)


def train(model, optimizer, share, mean):
    """Return the losses of three steps on a share of each batch, and the parameters."""
    data = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(3):
        words = torch.randint(0, 50, (8, 12), generator=data)
        labels = torch.randint(0, 3, (8,), generator=data)
        loss = model(input_ids=words[share], labels=labels[share]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.item()))
    state = {name: value.flatten().tolist() for name, value in model.named_parameters()}
    return {"losses": losses, "state": state}


bert = BertForSequenceClassification(config)
plain = copy.deepcopy(bert)
model = fleet.distributed_model(bert)
assert model.config is config  # looking into the model works as before
optimizer = fleet.distributed_optimizer(torch.optim.AdamW(model.parameters(), lr=1e-3))
workers = fleet.worker_num()
result = train(
    model,
    optimizer,
    slice(fleet.worker_index(), None, workers),
    lambda loss: float(fleet.util.all_reduce(loss)) / workers,
)
if fleet.is_first_worker():
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
    result["alone"] = train(plain, optimizer, slice(None), float)
    with open(options["out"], "w") as file:
        json.dump(result, file)
