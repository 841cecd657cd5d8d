"""parameter_server: servers hold the parameters; workers push gradients and pull parameters.

Replaces grad_sync (push), update (it runs on the servers, or on the worker in geo training) and
param_sync (pull). It is on in jobs that have servers; the strategy's `a_sync` and `a_sync_configs`
set the mode. The script's optimizer and techniques such as LARS define the update; `gradient_clip`
bounds the mean gradient on the servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.kernels.gradients import CLIP_EPSILON
from fleetx.ps.modes.async_mode import AsyncSettings
from fleetx.ps.modes.mode import Mode
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.ps.tables.table_spec import ClipSpec, DenseTableSpec
from fleetx.runtime import heartbeat
from fleetx.static.clip import GradientClipBase
from fleetx.static.mixed_precision import MixedPrecisionStage
from fleetx.static.optimizer.wrapped_optimizer import ProgramStage, WrappedOptimizer
from fleetx.step.program_step import ProgramParameterSync, ProgramStep, WrittenUpdate
from fleetx.step.registry import register
from fleetx.step.servers import JobServers
from fleetx.step.settings import Effect, read, setting
from fleetx.step.stages import (
    GradientSync,
    LocalGradients,
    Parameters,
    ParameterSync,
    Stage,
    Update,
)
from fleetx.step.technique import Job, Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.gradient_clip import Clip
from fleetx.techniques.served_tables import ServedTables, make_tables, start

# Paddle 2.x cuts only where every server gets so many elements.
MIN_BLOCK_SIZE = 81920


@dataclass(frozen=True, kw_only=True)
class Config:
    """How workers and servers exchange."""

    k_steps: int = setting(-1, number=1, since="2.0", least=-1)
    """0 synchronous or asynchronous by a_sync, from 1 on geo; -1 undecided."""
    max_merge_var_num: int = setting(1, number=2, since="2.0", least=1)
    """Gradients merged before they are sent."""
    send_queue_size: int = setting(16, number=3, since="2.0", least=1)
    """Gradients that may wait to be sent."""
    independent_recv_thread: bool = setting(False, number=4, since="2.0")
    """A thread of its own receives parameters."""
    min_send_grad_num_before_recv: int = setting(1, number=5, since="2.0", least=0)
    """Sends before parameters are fetched."""
    thread_pool_size: int = setting(1, number=6, since="2.0", least=1, effect=Effect.NONE)
    """Threads that send."""
    send_wait_times: int = setting(1, number=7, since="2.0", least=0)
    """Times 10 ms to wait for more gradients."""
    runtime_split_send_recv: bool = setting(False, number=8, since="2.0", effect=Effect.NONE)
    """Split while sending."""
    launch_barrier: bool = setting(True, number=9, since="2.0")
    """Wait for the servers at the start."""
    heter_worker_device_guard: str = setting("cpu", number=10, since="2.0", effect=Effect.NONE)
    """Device of heterogeneous workers."""
    lr_decay_steps: int = setting(10, number=11, since="2.0", least=1, effect=Effect.NONE)
    """Steps between two learning rates of a schedule."""
    use_ps_gpu: int = setting(0, number=12, since="2.1", effect=Effect.NONE)
    """Tables on the GPU."""
    max_staleness: int = setting(-1, number=1001, least=-1)
    """Steps by which parameters may lag behind in asynchronous training; -1 any number."""

    def mode(self, *, a_sync: bool) -> ServerMode:
        """Return the mode that these settings ask for."""
        if self.k_steps < 0:
            raise ValueError(
                "a job with parameter servers must set its training mode: set strategy.a_sync to "
                "False (sync) or True (async), or a_sync_configs['k_steps'] to 1 or more as well "
                "(geo)."
            )
        if self.k_steps > 0 and not a_sync:
            raise ValueError(
                f"a_sync_configs['k_steps'] is {self.k_steps}, but strategy.a_sync is False: geo "
                "training needs a_sync=True, and synchronous training k_steps=0."
            )
        settings = AsyncSettings(
            max_merge_var_num=self.max_merge_var_num,
            send_queue_size=self.send_queue_size,
            send_wait_times=max(1, self.send_wait_times),
            independent_recv_thread=self.independent_recv_thread,
            min_send_grad_num_before_recv=self.min_send_grad_num_before_recv,
            max_staleness=None if self.max_staleness < 0 else self.max_staleness,
        )
        return ServerMode(
            kind="geo" if self.k_steps else "async" if a_sync else "sync",
            k_steps=max(1, self.k_steps),
            settings=settings,
            min_block_size=MIN_BLOCK_SIZE,
            waits_for_servers=self.launch_barrier,
        )


def server_mode(strategy: Any) -> ServerMode:
    """Return the mode that a strategy asks for; one that is a ServerMode already is taken as it is.

    A strategy of another kind may have a method `server_mode` that returns it.
    """
    if isinstance(strategy, ServerMode):
        return strategy
    if hasattr(strategy, "server_mode"):
        return cast("ServerMode", strategy.server_mode())
    return read(Config, strategy.a_sync_configs).mode(a_sync=strategy.a_sync)


class Served:
    """A model whose parameters are on servers: its tables, and the mode it trains in."""

    def __init__(self, servers: JobServers) -> None:
        self._servers = servers
        self._mode: Mode | None = None
        self.clip: ClipSpec | None = None
        self.tables = ServedTables()

    @property
    def mode(self) -> Mode:
        """The exchange of this worker."""
        if self._mode is None:
            raise RuntimeError("call fleet.distributed_model(model) before the first step.")
        return self._mode

    def begin(self, step: TrainStep, parameters: dict[str, Tensor]) -> None:
        """Make the tables of a step whose model and optimizer are known; parameters that become
        rows of tables are taken out."""
        model = cast("nn.Module", step.model)
        client, mode = self._servers.client(), self._servers.mode
        self.tables = make_tables(model, step.update, mode, client.cut, self.clip)
        self._mode = start(model, self.tables, mode, client)
        self._servers.begin(self._mode)
        for name in set(parameters) - {name for name, _ in model.named_parameters()}:
            del parameters[name]


class Push(GradientSync):
    """Gradients go to the servers after backward."""

    during_backward = False

    def __init__(self, served: Served, step: TrainStep) -> None:
        self._served, self._step = served, step

    def exchange(self, parameters: Parameters) -> None:
        """Push the gradients of parameters and of rows."""
        mode, groups = self._served.mode, self._step.update.param_groups
        for group, mine in zip(groups, self._served.tables.groups, strict=True):
            gradients = _gradients(mine)
            if gradients:
                mode.push_dense(gradients, rate=float(group["lr"]))
        rate = float(groups[0]["lr"])
        for module in self._served.tables.modules:
            module.apply_gradients(rate)

    def others(self) -> list[Tensor]:
        """Return the gradients of rows."""
        return [each for module in self._served.tables.modules for each in module.gradients]

    def forget(self) -> None:
        """Discard the gradients of rows."""
        for module in self._served.tables.modules:
            module.forget_gradients()

    def state_dict(self) -> dict[str, Any]:
        """Return the gradients of rows that have not been pushed yet, for each embedding."""
        return {"rows": [module.gradient_state() for module in self._served.tables.modules]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        modules = self._served.tables.modules
        for module, rows in zip(modules, state.get("rows", ({},) * len(modules)), strict=True):
            module.load_gradient_state(rows)


def _gradients(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: p.grad.to_dense() if p.grad.is_sparse else p.grad
        for name, p in parameters.items()
        if p.grad is not None
    }


class ServerUpdate(Update):
    """The update runs on the servers; in geo training on the worker."""

    def __init__(self, served: Served, *, on_worker: bool) -> None:
        self._served, self._on_worker = served, on_worker

    def apply(self, optimizer: Optimizer) -> None:
        """End the step: all its gradients have been pushed."""
        if self._on_worker:
            optimizer.step()
        with heartbeat.collective("end of the step on servers"):
            self._served.mode.step_end()


class Pull(ParameterSync):
    """Parameters come from the servers."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def after_update(self, parameters: Parameters, loss: Tensor | None) -> None:
        """Pull the parameters."""
        with heartbeat.collective("parameters from servers"):
            self._served.mode.pull_dense()


class ServedProgram(ProgramParameterSync):
    """Servers update the parameters of a program."""

    def __init__(self, servers: JobServers, note: Callable[[Any, int], None]) -> None:
        """`note` is called with the dense tables and the number of those with rows."""
        self._servers, self._note = servers, note

    def write(self, written: WrittenUpdate) -> None:
        """Replace the updates by `send` and `recv`."""
        tables = self._servers.write_programs(written)
        self._note(tables.dense, len(tables.sparse))


@register
class ParameterServer(Technique[Config]):
    """Servers hold the parameters: workers push gradients and pull parameters."""

    name = "parameter_server"
    switch = "a_sync"
    order = Order.EXCHANGE
    replaces = frozenset({Stage.GRAD_SYNC, Stage.UPDATE, Stage.PARAM_SYNC})
    relocates = frozenset({Stage.UPDATE})
    refuses = {
        "fp16_allreduce": "gradients are sent to servers instead of being summed by an all-reduce",
    }
    because = (
        "the job has parameter servers",
        "train without servers by fleet.init(is_collective=True)",
    )

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._served: Served | None = None  # of a module
        self._dense_bytes: float | None = None  # of the dense tables, once they are known
        self._tables = 0  # with rows

    @classmethod
    def acts_in(cls, job: Job) -> bool:
        """Return whether the job has servers."""
        return job.servers is not None

    @classmethod
    def trials(cls, strategy: Any, device: str) -> list[tuple[str, dict[str, Any]]]:
        """Return nothing: whether there are servers is not a choice."""
        return []

    @property
    def servers(self) -> JobServers:
        """The servers of the job."""
        assert self.job.servers is not None
        return self.job.servers

    @property
    def mode(self) -> ServerMode:
        """How workers train with them."""
        return self.servers.mode

    def check(self) -> None:
        """Reject a strategy that does not set the mode."""
        self.mode  # noqa: B018 - raises

    def check_optimizer(self, optimizer: Any) -> None:
        """Refuse optimizers of programs that change gradients or parameters around the update."""
        while isinstance(optimizer, WrappedOptimizer):
            scaling = optimizer.scaling if isinstance(optimizer, MixedPrecisionStage) else None
            writes = type(optimizer).updating is not ProgramStage.updating
            if writes and (scaling is None or scaling.is_on):
                raise ValueError(
                    f"the optimizer is a {type(optimizer).__name__}, which acts around the update, "
                    "but the update runs on parameter servers: give the plain optimizer to "
                    "fleet.distributed_optimizer, and switch on strategy.amp or "
                    "strategy.gradient_merge instead."
                )
            optimizer = optimizer.inner

    def change_step(self, step: TrainStep) -> None:
        """Push, update on the servers, pull."""
        self._served = served = Served(self.servers)
        step.grad_sync = Push(served, step)
        step.updater = ServerUpdate(served, on_worker=self.mode.updates_on_worker)
        step.param_sync = Pull(served)
        if step.clip is not None:
            served.clip, step.clip = clip_spec(step.clip), None

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Make the tables once model and optimizer are known; the optimizer says how to update."""
        step.when_named.append(partial(self._begin, step))
        return optimizer

    def _begin(self, step: TrainStep, parameters: dict[str, Tensor]) -> None:
        assert self._served is not None
        self._served.begin(step, parameters)
        tables = self._served.tables
        self._note(tables.dense, len(tables.sparse))

    def change_program(self, step: ProgramStep) -> None:
        """Rewrite the program that `minimize` completes: `send`, `recv` and look-ups at servers."""
        if step.clip is not None and not isinstance(step.clip, GradientClipBase):
            clip_spec(step.clip)  # raises
        step.grad_sync, step.starts_equal = LocalGradients(), False
        step.param_sync = ServedProgram(self.servers, self._note)

    def _note(self, dense: Sequence[Sequence[DenseTableSpec]], tables: int) -> None:
        self._dense_bytes = float(sum(_bytes(spec) for specs in dense for spec in specs))
        self._tables = tables

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what is pushed and pulled of dense parameters; rows depend on the batch."""
        mode = self.mode
        dense = float(sizes.parameter_bytes) if self._dense_bytes is None else self._dense_bytes
        is_geo = mode.updates_on_worker
        travels = dense / mode.k_steps if is_geo else dense
        rows = f", and the batch's rows of {self._tables} table(s)" if self._tables else ""
        every = f" every {mode.k_steps} steps" if is_geo else ""
        short = f"parameter servers ({mode.kind})"
        pushed = Row(
            stage=Stage.GRAD_SYNC,
            technique=self.name,
            settings=f"{mode.kind}: push {'differences' if is_geo else 'gradients'}{every}{rows}",
            bytes_sent=travels,
            short=short,
        )
        place = "on the worker" if is_geo else f"on {self.servers.count} server(s)"
        updated = Row(stage=Stage.UPDATE, technique=self.name, settings=place, short=short)
        pulled = Row(
            stage=Stage.PARAM_SYNC,
            technique=self.name,
            settings=f"pull parameters{every}{rows}",
            bytes_received=travels,
            memory=0.0 if mode.kind == "sync" else dense,
            short=short,
        )
        return [pushed, updated, pulled]


def _bytes(spec: DenseTableSpec) -> int:
    return sum(block.size for block in spec.blocks) * getattr(torch, spec.dtype).itemsize


def clip_spec(clip: Any) -> ClipSpec:
    """Return what servers clip the mean gradient by."""
    if not isinstance(clip, Clip):
        raise ValueError(
            f"the step clips gradients by a {type(clip).__name__}, which parameter servers do not "
            "know: use strategy.gradient_clip."
        )
    if clip.value:
        return ClipSpec(kind="value", limit=clip.value)
    return ClipSpec(kind="global_norm", limit=clip.norm, epsilon=CLIP_EPSILON)
