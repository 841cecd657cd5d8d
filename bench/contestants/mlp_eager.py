"""The documents' first network, written by hand in eager PyTorch, arrays in and out."""

import torch
from loop import serve
from mlp_data import BATCHES
from torch import nn
from torch_step import training_step

torch.set_num_threads(1)


class Mlp(nn.Module):
    """Two hidden layers with tanh."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 128)
        self.second = nn.Linear(128, 128)
        self.last = nn.Linear(128, 2)

    def forward(self, x):
        """Return logits."""
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


model = Mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def loss_of(i):
    """Return the loss of a batch."""
    batch = BATCHES[i % len(BATCHES)]
    logits = model(torch.from_numpy(batch["x"]))
    return nn.functional.cross_entropy(logits, torch.from_numpy(batch["y"]).view(-1))


serve(training_step(loss_of, optimizer), 50)
