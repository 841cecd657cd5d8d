"""Hooks into the training step of a PyTorch module: torch's own hooks, and timed stages.

torch has hooks for forward passes and the update. The time that backward waits for the gradients of
other workers lies between two callbacks of autograd's engine: the first runs when all gradients are
computed, the second after DDP has reduced them. Work that techniques do after backward is reported
by the stages themselves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fleetx import torch_private
from fleetx.comm import world
from fleetx.monitor import plain_backward
from fleetx.monitor.batch_samples import samples_in
from fleetx.monitor.recorder import Recorder, now
from fleetx.monitor.stage_timing import Listened, Told
from fleetx.step.stages import Update
from fleetx.step.train_step import TrainStep

Remove = Callable[[], None]


class EagerTarget:
    """A training step, and its model if there is one."""

    def __init__(self, step: TrainStep, model: nn.Module | None) -> None:
        self._step = weakref.ref(step)
        self._model = None if model is None else weakref.ref(model)

    def attach(self, recorder: Recorder) -> list[Remove]:
        """Attach the hooks of a recorder; return the functions that remove them."""
        step = self._step()
        if step is None:
            return []
        model = None if self._model is None else self._model()
        removes = [] if model is None else listen_to_model(model, recorder)
        waits = world.is_connected() and step.grad_sync.during_backward
        removes += _listen_to_backward(list(step.parameters.values()), recorder, waits=waits)
        return removes + _listen_to_step(step, recorder)


def listen_to_model(model: nn.Module, recorder: Recorder) -> list[Remove]:
    """Record forward passes in training mode; others count as pauses."""

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        if module.training and torch.is_grad_enabled():
            recorder.forward_began(samples_in([*args, *kwargs.values()]))
        else:
            recorder.paused()

    def after(module: nn.Module, _: Any, output: Any) -> None:
        if module.training and torch.is_grad_enabled():
            recorder.forward_ended(_loss_in(output))

    return [
        model.register_forward_pre_hook(before, with_kwargs=True).remove,
        model.register_forward_hook(after).remove,
    ]


def _loss_in(output: Any) -> Any:
    """Return the loss if the model returns it: a scalar, or a field of that name."""
    loss = getattr(output, "loss", output)
    is_number = isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.is_floating_point()
    return loss.detach() if is_number else None


def _listen_to_backward(
    parameters: list[torch.Tensor], recorder: Recorder, *, waits: bool
) -> list[Remove]:
    trained = [p for p in parameters if p.requires_grad and p.is_leaf]
    if not trained:
        return []
    queued = False

    def ready(_: torch.Tensor) -> None:
        nonlocal queued
        if torch_private.current_graph_task_id() == -1:
            # Outside of backward: a pipeline of shards reduces gradients after it.
            recorder.backward_waited(now(), now())
        elif not queued:  # once per backward pass, by the first parameter
            queued = True
            _when_backward_ends(computed)

    def computed() -> None:
        began = now()

        def exchanged() -> None:
            nonlocal queued
            queued = False
            recorder.backward_waited(began, now() if waits else began)

        _when_backward_ends(exchanged)

    # The last parameter usually gets its gradient first; a batch may not use it.
    ends = {id(p): p for p in (trained[-1], trained[0])}
    return [p.register_post_accumulate_grad_hook(ready).remove for p in ends.values()]


def _when_backward_ends(callback: Callable[[], None]) -> None:
    """Register a callback with autograd's engine for the end of the current backward pass."""
    torch_private.execution_engine.queue_callback(callback)


def _listen_to_step(step: TrainStep, recorder: Recorder) -> list[Remove]:
    is_plain = step.is_plain
    removes = _listen_to_update(step, recorder)
    step.on_loss = recorder.note_loss
    removes.append(lambda: setattr(step, "on_loss", None))
    removes.append(plain_backward.listen(recorder.note_backward))
    return removes if is_plain else removes + _listen_to_stages(step, recorder)


def _listen_to_update(step: TrainStep, recorder: Recorder) -> list[Remove]:
    began, is_plain, update = 0.0, step.is_plain, step.update
    if type(step.updater) is not Update:  # the optimizer's step may not be called
        return []

    def before(*_: Any) -> None:
        nonlocal began
        began = now()

    def after(*_: Any) -> None:
        recorder.stage("update", began, now())
        if is_plain:
            recorder.step_ended()

    return [
        update.register_step_pre_hook(before).remove,
        update.register_step_post_hook(after).remove,
    ]


def _listen_to_stages(step: TrainStep, recorder: Recorder) -> list[Remove]:
    def timed(what: str, ends: Callable[[Any], bool] = lambda _: False) -> Told:
        def told(began: float, ended: float, result: Any) -> None:
            recorder.stage(what, began, ended)
            if ends(result):
                recorder.step_ended()

        return told

    listeners = {
        "precision": {"usable": timed("check gradients")},
        # It is not time for an update while gradients accumulate: this ends the step.
        "grad_sync": {
            "collect": timed("collect gradients", lambda is_time: not is_time),
            "exchange": timed("exchange gradients"),
        },
        "param_sync": {"after_update": timed("exchange parameters", lambda _: True)},
    }
    if type(step.updater) is not Update:
        listeners["updater"] = {"apply": timed("update")}
    own = {name: getattr(step, name) for name in listeners}
    for name, told in listeners.items():
        setattr(step, name, Listened(own[name], told))

    def restore() -> None:
        for name, stage in own.items():
            setattr(step, name, stage)

    return [restore]
