"""Train one small network with the loop of a library, plain and through Fleet; write what came.

    loops.py FOLDER LIBRARY,LIBRARY,... CASE...

Data, network and order of batches are the same in every case. Per case: losses, the checksum of the
parameters, bytes per step said by `explain()` and received over TCP, and what a resumed run gives.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from in_order import in_order
from sharding import received
from torch import nn
from torch.utils.data import DataLoader, Dataset

from fleetx import fleet

WIDTH, SAMPLES, BATCH = 160, 64, 4
STEPS = SAMPLES // BATCH // 2  # of each of two workers, per epoch


class Numbers(Dataset):
    """Random rows, and the sum of each."""

    def __init__(self):
        self.x = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.x[index].sum()}


class Network(nn.Module):
    """A regression whose forward returns the loss, as transformers' Trainer expects."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, x, y):
        return {"loss": nn.functional.mse_loss(self.body(x).squeeze(-1), y)}


def make_strategy(case):
    strategy = fleet.DistributedStrategy()
    if "localsgd" in case:
        strategy.localsgd = True
        strategy.localsgd_configs = {"k_steps": 4, "begin_step": 1}
    if "gradient_merge" in case:
        strategy.gradient_merge = True
        strategy.gradient_merge_configs = {"k_steps": 2}
    if "dgc" in case:
        strategy.dgc = True
        strategy.dgc_configs = {"rampup_begin_step": 1, "sparsity": [0.99]}
    if "sharding" in case:
        strategy.sharding = True
        strategy.sharding_configs = {"stage": 2}
    return strategy


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.001, momentum=0.9)


def checksum(model):
    return sum(float(p.detach().double().abs().sum()) for p in model.parameters())


def of_fleet(case):
    return case != "theirs"


def facts(case, losses, model, marks):
    """Return what a run gave; `marks` are the bytes received until the end of each step."""
    told = {"losses": losses, "sum": checksum(model)}
    if len(marks) >= STEPS:
        told["received"] = (marks[STEPS - 1] - marks[STEPS - 5]) / 4
    if of_fleet(case):
        told["said"] = fleet.explain().bytes_sent
        told["techniques"] = fleet.fleet._get_applied_meta_list()
    return told


# -- Accelerate ---------------------------------------------------------------------------------
def accelerate(case, folder, resume=False):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    from fleetx.integrations import FleetPlugin

    AcceleratorState._reset_state()
    GradientState._reset_state()
    accumulate = 2 if "accumulated" in case else 1
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    if of_fleet(case):
        FleetPlugin(make_strategy(case)).attach(accelerator)
    model = Network()
    optimizer = sgd(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    loader = DataLoader(Numbers(), BATCH)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    if resume:
        accelerator.load_state(folder)
    losses, marks = [], []
    for epoch in range(1 if resume else 0, 2):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            marks.append(received())
        if epoch == 0:
            accelerator.save_state(folder)
    unwrapped = type(accelerator.unwrap_model(model)).__name__
    mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
    return {**facts(case, losses, model, marks), "unwrapped": unwrapped, "logged": mean}


# -- transformers -------------------------------------------------------------------------------
def transformers(case, folder, resume=False):
    from accelerate.state import AcceleratorState, GradientState
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from fleetx.integrations import FleetTrainer

    AcceleratorState._reset_state()
    GradientState._reset_state()
    losses, marks = [], []

    class Watch(TrainerCallback):
        """Notes losses and bytes; it is one of the Trainer's own callbacks."""

        def on_step_end(self, args, state, control, **rest):
            marks.append(received())

        def on_log(self, args, state, control, logs, **rest):
            if "loss" in logs:
                losses.append(logs["loss"])

    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH,
        num_train_epochs=2,
        save_strategy="epoch",
        logging_steps=1,
        learning_rate=0.001,
        lr_scheduler_type="constant",
        max_grad_norm=0,
        gradient_accumulation_steps=2 if "accumulated" in case else 1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    kwargs = {"model": Network(), "args": arguments, "train_dataset": Numbers()}
    kwargs["optimizers"] = (sgd(kwargs["model"].parameters()), None)
    if of_fleet(case):
        trainer = in_order(FleetTrainer)(fleet_strategy=make_strategy(case), **kwargs)
    else:
        trainer = in_order(Trainer)(**kwargs)
    trainer.add_callback(Watch())
    first = str(Path(folder) / f"checkpoint-{STEPS}") if resume else None
    trainer.train(resume_from_checkpoint=first)
    logged = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    progress = [trainer.state.global_step, trainer.state.max_steps]
    told = facts(case, losses, trainer.model, marks)
    return {**told, "logged": logged[-1], "progress": progress}


# -- Lightning and Fabric -----------------------------------------------------------------------
def lightning(case, folder, resume=False):
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    from fleetx.integrations import FleetStrategy

    losses, marks = [], []

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Network()

        def training_step(self, batch, index):
            loss = self.network(**batch)["loss"]
            losses.append(loss.item())
            self.log("loss", loss)
            return loss

        def on_train_batch_end(self, *_):
            marks.append(received())

        def configure_optimizers(self):
            optimizer = sgd(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1000)]

    module = Module()
    saving = ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)
    trainer = pl.Trainer(
        strategy=FleetStrategy(make_strategy(case)) if of_fleet(case) else "ddp",
        accelerator="cpu",
        devices=2,
        max_epochs=2,
        accumulate_grad_batches=2 if "accumulated" in case else 1,
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(Numbers(), BATCH)
    trainer.fit(module, loader, ckpt_path=f"{folder}/epoch=0.ckpt" if resume else None)
    logged = trainer.callback_metrics["loss"].item()
    told = facts(case, losses, module, marks)
    return {**told, "logged": logged, "progress": [trainer.global_step, 2 * STEPS]}


def fabric(case, folder, resume=False):
    from lightning.fabric import Fabric

    from fleetx.integrations import FleetFabricStrategy

    plain = FleetFabricStrategy(make_strategy(case)) if of_fleet(case) else "ddp"
    fabric = Fabric(strategy=plain, accelerator="cpu", devices=2)
    fabric.launch()
    model = Network()
    model, optimizer = fabric.setup(model, sgd(model.parameters()))
    loader = fabric.setup_dataloaders(DataLoader(Numbers(), BATCH))
    state = {"model": model, "optimizer": optimizer}
    if resume:
        fabric.load(f"{folder}/state.ckpt", state)
    losses, marks = [], []
    for epoch in range(1 if resume else 0, 2):
        for step, batch in enumerate(loader):
            waits = "accumulated" in case and step % 2 == 0
            with fabric.no_backward_sync(model, enabled=waits):
                loss = model(**batch)["loss"]
                fabric.backward(loss / 2 if "accumulated" in case else loss)
            if not waits:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            marks.append(received())
        if epoch == 0:
            fabric.save(f"{folder}/state.ckpt", state)
    mean = fabric.all_reduce(loss.detach(), reduce_op="mean").item()
    return {**facts(case, losses, model, marks), "logged": mean}


def main():
    warnings.filterwarnings("ignore")
    folder, libraries, *cases = sys.argv[1:]
    for library in libraries.split(","):
        train, told = globals()[library], {}
        for case in cases:
            place = str(Path(folder) / library / case)
            told[case] = train(case, place)
            if case not in ("theirs", "plain", "accumulated"):
                told[case]["resumed"] = train(case, place, resume=True)
        rank = torch.distributed.get_rank()
        (Path(folder) / f"{library}.{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
