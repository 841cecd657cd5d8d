"""The training loops of Accelerate, transformers, Lightning and Fabric, as their users write them.

Each trains a task for two epochs, with the library's own checkpoint after the first; `resume`
starts from that checkpoint. A task without a strategy is trained by the library's own DDP.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler

from fleetx import fleet

SAMPLES, BATCH = 64, 4
STEPS = SAMPLES // BATCH // 2  # of each of two workers, per epoch


@dataclass
class Task:
    """What is trained; the network's forward returns the loss, as transformers' Trainer expects."""

    network: Callable[[], nn.Module]
    data: Dataset
    optimizer: Callable[..., torch.optim.Optimizer]
    strategy: fleet.DistributedStrategy | None
    accumulate: int = 1
    repeats: bool = False
    """Whether to go back to the checkpoint in the end and to train the second epoch again."""
    after_step: Callable[[], object] = lambda: None


@dataclass
class Trained:
    """The result of a loop."""

    losses: list[float]
    network: nn.Module
    logged: float
    progress: list[int] | None = None
    """Steps done and steps to do, where a library counts them."""


def _epochs(task: Task, resume: bool) -> tuple[int, ...]:
    if resume:
        return (1,)
    return (0, 1, 1) if task.repeats else (0, 1)


def accelerate(task: Task, folder: str, resume: bool = False) -> Trained:
    """Train with an Accelerator."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    from fleetx.integrations import FleetPlugin

    AcceleratorState._reset_state()
    GradientState._reset_state()
    plugin = task.strategy and FleetPlugin(task.strategy)  # serves, in a server
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=task.accumulate)
    if plugin:
        plugin.attach(accelerator)
    model = task.network()
    optimizer = task.optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    loader = DataLoader(task.data, BATCH)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for number, epoch in enumerate(_epochs(task, resume)):
        if resume or number == 2:
            accelerator.load_state(folder)
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            task.after_step()
        if epoch == 0:
            accelerator.save_state(folder)
    mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
    return Trained(losses, accelerator.unwrap_model(model), mean)


def _in_order(kind: Any) -> Any:
    """Return a class of Trainer that does not shuffle; the setting for it has changed its name."""

    class InOrder(kind):
        def _get_train_sampler(self, *_: Any) -> SequentialSampler:
            return SequentialSampler(self.train_dataset)

    return InOrder


def transformers(task: Task, folder: str, resume: bool = False) -> Trained:
    """Train with a Trainer."""
    from accelerate.state import AcceleratorState, GradientState
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from fleetx.integrations import FleetTrainer

    AcceleratorState._reset_state()
    GradientState._reset_state()
    losses = []

    class Watch(TrainerCallback):
        """Notes losses; it is one of the Trainer's own callbacks."""

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            task.after_step()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **rest: Any) -> None:
            if "loss" in logs:
                losses.append(logs["loss"])

    model = task.network()
    optimizer = task.optimizer(model.parameters())
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH,
        num_train_epochs=2,
        save_strategy="epoch",
        logging_steps=1,
        learning_rate=optimizer.defaults["lr"],
        lr_scheduler_type="constant",
        max_grad_norm=0,
        gradient_accumulation_steps=task.accumulate,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    given = {"args": arguments, "train_dataset": task.data, "optimizers": (optimizer, None)}
    if task.strategy:
        trainer = _in_order(FleetTrainer)(model, fleet_strategy=task.strategy, **given)
    else:
        trainer = _in_order(Trainer)(model, **given)
    trainer.add_callback(Watch())
    first = str(Path(folder) / f"checkpoint-{STEPS}")
    trainer.train(resume_from_checkpoint=first if resume else None)
    if task.repeats:
        trainer.train(resume_from_checkpoint=first)
    logged = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    progress = [trainer.state.global_step, trainer.state.max_steps]
    return Trained(losses, trainer.model, logged[-1], progress)


def lightning(task: Task, folder: str, resume: bool = False) -> Trained:
    """Train with Lightning's Trainer, which makes a new optimizer when it resumes."""
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    from fleetx.integrations import FleetStrategy

    losses = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = task.network()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = self.network(**batch)["loss"]
            losses.append(loss.item())
            self.log("loss", loss)
            return loss

        def on_train_batch_end(self, *_: Any) -> None:
            task.after_step()

        def configure_optimizers(self) -> Any:
            optimizer = task.optimizer(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1000)]

    trainer = pl.Trainer(
        strategy=FleetStrategy(task.strategy) if task.strategy else "ddp",  # serves, in a server
        accelerator="cpu",
        devices=2,
        max_epochs=2,
        accumulate_grad_batches=task.accumulate,
        callbacks=[ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # its own one may shuffle
    )
    module = Module()
    sampler = DistributedSampler(task.data, 2, int(os.environ["RANK"]), shuffle=False)
    loader = DataLoader(task.data, BATCH, sampler=sampler)
    trainer.fit(module, loader, ckpt_path=f"{folder}/epoch=0.ckpt" if resume else None)
    logged = trainer.callback_metrics["loss"].item()
    return Trained(losses, module.network, logged, [trainer.global_step, 2 * STEPS])


def fabric(task: Task, folder: str, resume: bool = False) -> Trained:
    """Train with Fabric."""
    from lightning.fabric import Fabric

    from fleetx.integrations import FleetFabricStrategy

    strategy = FleetFabricStrategy(task.strategy) if task.strategy else "ddp"  # may serve
    fabric = Fabric(strategy=strategy, accelerator="cpu", devices=2)
    fabric.launch()
    network = task.network()
    model, optimizer = fabric.setup(network, task.optimizer(network.parameters()))
    loader = fabric.setup_dataloaders(DataLoader(task.data, BATCH))
    state = {"model": model, "optimizer": optimizer}
    losses = []
    for number, epoch in enumerate(_epochs(task, resume)):
        if resume or number == 2:
            fabric.load(f"{folder}/state.ckpt", state)
        for step, batch in enumerate(loader, 1):
            waits = step % task.accumulate > 0
            with fabric.no_backward_sync(model, enabled=waits):
                loss = model(**batch)["loss"]
                fabric.backward(loss / task.accumulate)
            if not waits:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            task.after_step()
        if epoch == 0:
            fabric.save(f"{folder}/state.ckpt", state)
    mean = fabric.all_reduce(loss.detach(), reduce_op="mean").item()
    return Trained(losses, network, mean)


LOOPS = {
    "accelerate": accelerate,
    "transformers": transformers,
    "lightning": lightning,
    "fabric": fabric,
}
