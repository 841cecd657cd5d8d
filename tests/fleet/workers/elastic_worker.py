"""A worker of an elastic job that may kill or freeze itself, and records what it has trained.

Arguments: a folder, and settings as JSON: `event` (kill or stop), `worker` and `batch` at which it
happens, `holds` (a worker that keeps its batch of that number until the event is over), `strategy`,
`until` (group sizes to be seen before the end), `last` (a file with the number of epochs after
which to end), `own` (load with a DataLoader of its own, and save the position after each step),
`resume` (load the newest checkpoint, and save one after each step) and those of the loader.
"""

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from fleetx import fleet

SAMPLES = 23


class Numbers(Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """A linear problem, with the index of each sample."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        x = torch.randn(4, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
        return index, x, x.sum().reshape(1)


def make_model(width: int = 3) -> nn.Module:
    """Return a small network, or in float32 one with a layer of so many squared weights."""
    if width == 3:
        return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    wide = nn.Sequential(nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 1))
    return nn.Sequential(Cast(), wide, Cast64())


class Cast(nn.Module):
    """Converts to float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


class Cast64(nn.Module):
    """Converts to float64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.double()


class History:
    """The group size of every finished step, as part of the shared state.

    `ids` are this worker's samples since then, with their epochs; a discarded step puts the state
    back. `first` is the worker whose values were the first: not worker 0 if it came late.
    """

    def __init__(self, first: int) -> None:
        self.sizes: list[int] = []
        self.ids: list[list[int]] = []
        self.first = first

    def state_dict(self) -> dict[str, Any]:
        return {"sizes": list(self.sizes), "first": self.first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sizes, self.ids, self.first = list(state["sizes"]), [], state["first"]

    def has_seen(self, wanted: list[int]) -> bool:
        """Return whether these sizes came one after another."""
        seen = iter(self.sizes)
        return all(size in seen for size in wanted)


class ModuleTrainer:
    """A module, its optimizer and a scheduler."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._model = fleet.distributed_model(make_model(settings.get("width", 3)))
        rate = settings.get("rate", {"lr": 0.1, "momentum": 0.9})
        kind = getattr(torch.optim, settings.get("optimizer", "SGD"))
        self._optimizer = fleet.distributed_optimizer(kind(self._model.parameters(), **rate))
        self.scheduler = torch.optim.lr_scheduler.StepLR(self._optimizer, 5, gamma=0.9)
        self._loss: torch.Tensor | None = None

    def compute(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Run forward and backward."""
        self._optimizer.zero_grad()
        self._loss = (self._model(x) - y).square().mean()
        self._loss.backward()

    def update(self) -> None:
        """Exchange and update."""
        self._optimizer.step(loss=self._loss)

    def parts(self) -> dict[str, Any]:
        """Return what a checkpoint consists of."""
        return {
            "model": self._model,
            "optimizer": self._optimizer,
            "scheduler": self.scheduler,
        }

    def parameters(self) -> list[Any]:
        """Return the values of all parameters."""
        return [p.tolist() for p in self._model.parameters()]


def _is_last(folder: Path, settings: dict[str, Any], epoch: int) -> bool:
    """Return whether a file says that this many epochs are enough."""
    if "last" not in settings:
        return False
    path = folder / settings["last"]
    return path.exists() and epoch >= int(path.read_text())


def _wait_for_successor(folder: Path, worker: int, pid: str) -> None:
    """Wait until a worker that was killed has been started again; the job's test has a limit."""
    while (folder / f"pid.{worker}").read_text() in ("", pid):
        time.sleep(0.01)


def main() -> None:
    faulthandler.register(signal.SIGUSR2)
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    number = int(os.environ["PADDLE_TRAINER_ID"])
    acts = number == settings.get("worker") and "FLEETX_RESTART_COUNT" not in os.environ
    (folder / f"pid.{number}").write_text(str(os.getpid()))
    strategy = fleet.DistributedStrategy()
    for name, value in settings.get("strategy", {}).items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    torch.manual_seed(number)  # all but the first get other values from a peer
    if settings.get("program"):
        from elastic_program import ProgramTrainer

        trainer: Any = ProgramTrainer(settings.get("width", 3))
    else:
        trainer = ModuleTrainer(settings)
    history = History(number)
    fleet.share_state(history=history, scheduler=trainer.scheduler)
    data: Any = Numbers()
    if settings.get("reader"):
        data = lambda: map(Numbers().__getitem__, range(SAMPLES))  # noqa: E731
    if settings.get("own"):
        sampler = fleet.ElasticSampler(data, 2)
        several = {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}
        loader = fleet.elastic_loader(DataLoader(data, batch_sampler=sampler, **several))
    else:
        loader = fleet.elastic_loader(data, **settings.get("loader", {"batch_size": 2}))
    saved = str(folder / "saved")
    if settings.get("resume"):
        fleet.load_checkpoint(saved, **trainer.parts(), history=history, loader=loader)
    batches, wanted = 0, settings["until"]
    victim = ""
    records = open(folder / f"ids.{number}.{os.getpid()}", "a", buffering=1)  # noqa: SIM115
    for _ in loader.epochs(10_000):
        for ids, x, y in loader:
            if number == settings.get("holds"):
                victim = victim or (folder / f"pid.{settings['worker']}").read_text()
                if batches + 1 == settings["batch"]:
                    _wait_for_successor(folder, settings["worker"], victim)
            position = loader.state_dict()
            trainer.compute(x, y)
            batches += 1
            if acts and batches == settings["batch"]:
                kind = signal.SIGKILL if settings["event"] == "kill" else signal.SIGSTOP
                os.kill(os.getpid(), kind)
            ends_step = loader.ends_step
            trainer.update()
            if ends_step:
                trainer.scheduler.step()
            if loader.counted:
                history.ids += [[loader.epoch, index] for index in ids.tolist()]
            is_finished = loader.state_dict() != position
            if is_finished:
                history.sizes.append(fleet.worker_num())
                records.write(json.dumps([history.ids, len(history.sizes)]) + "\n")
                history.ids = []
                if settings.get("own"):
                    steps = len(history.sizes)
                    fleet.save_checkpoint(saved, keep=1, loader=loader, steps=steps)
                if settings.get("resume"):
                    parts = {**trainer.parts(), "history": history, "loader": loader}
                    fleet.save_checkpoint(saved, exact=False, **parts)
                if "last" in settings:
                    (folder / f"status.{number}").write_text(
                        f"{loader.epoch} {len(history.sizes)} {fleet.worker_num()}"
                    )
            if is_finished and settings.get("ends") == "step" and history.has_seen(wanted):
                break
        if _is_last(folder, settings, loader.epoch):
            break
        if wanted and history.has_seen(wanted):
            break
    result = {
        "sizes": history.sizes,
        "first": history.first,
        "parameters": trainer.parameters(),
        "epochs": loader.epoch,
        "rank": fleet.worker_index(),
    }
    (folder / f"result.{number}").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
