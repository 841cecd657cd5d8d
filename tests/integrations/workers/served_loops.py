"""Train a model with rows on parameter servers by the loop of a library; write what came.

    served_loops.py FOLDER LIBRARY [resume]

Per worker: the losses, and the model's answers at the end, whose rows come from the servers. Two
epochs, with the library's checkpoint after the first. With `resume`, the second one alone, from
the checkpoint of an earlier job; libraries other than Lightning, which makes a new optimizer for
that, also go back to the checkpoint in the same job.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from in_order import in_order
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import fleetx
from fleetx import fleet

SAMPLES, BATCH = 64, 4
STEPS = SAMPLES // BATCH // 2  # of each of two workers, per epoch


class Clicks(Dataset):
    """Ids and a number for each."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"user": torch.tensor(index % 24 * 10**9), "y": torch.tensor(float(index % 5))}


class Network(nn.Module):
    """Rows and a head; forward returns the loss, as transformers' Trainer expects."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.rows = fleetx.SparseEmbedding("user", 8)
        self.head = nn.Linear(8, 1)

    def score(self, user):
        return self.head(self.rows(user)).squeeze(-1)

    def forward(self, user, y):
        return {"loss": nn.functional.mse_loss(self.score(user), y)}


def make_strategy():
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = False
    return strategy


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.05)


def accelerate(folder, resume):
    from accelerate import Accelerator

    from fleetx.integrations import FleetPlugin

    plugin = FleetPlugin(make_strategy())  # serves, in a server
    accelerator = plugin.attach(Accelerator(cpu=True))
    model = Network()
    model, optimizer, loader = accelerator.prepare(
        model, adam(model.parameters()), DataLoader(Clicks(), BATCH)
    )
    losses = []
    for epoch in (0, 1, 2):
        if epoch == 2:
            accelerator.load_state(folder)
        for batch in loader:
            loss = model(**batch)["loss"]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        if epoch == 0:
            accelerator.save_state(folder)
    return losses, accelerator.unwrap_model(model)


def transformers(folder, resume):
    from transformers import TrainerCallback, TrainingArguments

    from fleetx.integrations import FleetTrainer

    losses = []

    class Watch(TrainerCallback):
        """Notes losses; it is one of the Trainer's own callbacks."""

        def on_log(self, args, state, control, logs, **rest):
            if "loss" in logs:
                losses.append(logs["loss"])

    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH,
        num_train_epochs=2,
        save_strategy="epoch",
        logging_steps=1,
        lr_scheduler_type="constant",
        learning_rate=0.05,
        max_grad_norm=0,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    model = Network()
    trainer = in_order(FleetTrainer)(
        model,
        arguments,
        train_dataset=Clicks(),
        optimizers=(adam(model.parameters()), None),
        fleet_strategy=make_strategy(),
    )
    trainer.add_callback(Watch())
    trainer.train()
    trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-{STEPS}")
    return losses, model


def lightning(folder, resume):
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    from fleetx.integrations import FleetStrategy

    losses = []

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Network()

        def training_step(self, batch, index):
            loss = self.network(**batch)["loss"]
            losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return adam(self.parameters())

    strategy = FleetStrategy(make_strategy())  # serves, in a server
    rank = int(strategy.cluster_environment.global_rank())
    trainer = pl.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=2,
        max_epochs=2,
        callbacks=[ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # its own one shuffles
    )
    module = Module()
    sampler = DistributedSampler(Clicks(), 2, rank, shuffle=False)
    loader = DataLoader(Clicks(), BATCH, sampler=sampler)
    trainer.fit(module, loader, ckpt_path=f"{folder}/epoch=0.ckpt" if resume else None)
    return losses, module.network


def fabric(folder, resume):
    from lightning.fabric import Fabric

    from fleetx.integrations import FleetFabricStrategy

    strategy = FleetFabricStrategy(make_strategy())  # serves, in a server
    fabric = Fabric(strategy=strategy, accelerator="cpu", devices=2)
    fabric.launch()
    network = Network()
    model, optimizer = fabric.setup(network, adam(network.parameters()))
    loader = fabric.setup_dataloaders(DataLoader(Clicks(), BATCH))
    state = {"model": model, "optimizer": optimizer}
    losses = []
    for epoch in (0, 1, 2):
        if epoch == 2:
            fabric.load(f"{folder}/state.ckpt", state)
        for batch in loader:
            loss = model(**batch)["loss"]
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        if epoch == 0:
            fabric.save(f"{folder}/state.ckpt", state)
    return losses, network


def main():
    warnings.filterwarnings("ignore")
    folder, library, *rest = sys.argv[1:]
    losses, model = globals()[library](f"{folder}/{library}", bool(rest))
    with torch.no_grad():
        scores = model.score(torch.arange(30) * 10**9).tolist()
    told = {"losses": losses, "scores": scores, "servers": fleet.server_num()}
    rank = fleet.worker_index()
    (Path(folder) / f"{library}.{rank}{''.join(rest)}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
