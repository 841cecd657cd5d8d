"""The Fleet session: the object behind the functions of `fleetx.fleet`.

`init` determines this worker's role and connects it to the others, `distributed_model` and
`distributed_optimizer` make a model and an optimizer train on all workers, `save_*` save the
result. The session of the process is in `fleetx.fleet`; its methods are the module's functions.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from fleetx import comm
from fleetx.comm.sync_batch_norm import convert_sync_batch_norm
from fleetx.fleet.collective import uneven_batches as uneven
from fleetx.fleet.collective.composition import Composition
from fleetx.fleet.collective.elastic_loader import ElasticLoader
from fleetx.fleet.collective.elastic_rules import refuse
from fleetx.fleet.collective.elastic_sampler import loader_of
from fleetx.fleet.collective.elastic_training import ElasticTraining
from fleetx.fleet.collective.foreign_wrappers import refuse_other_wrappers
from fleetx.fleet.collective.observing import observe_session
from fleetx.fleet.roles.mpi_role_maker import default_role_maker
from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.fleet.roles.user_defined_role_maker import UserDefinedRoleMaker
from fleetx.fleet.saving.averaging import watch_exit
from fleetx.fleet.saving.background_saving import BackgroundSaving
from fleetx.fleet.saving.memory_copy import MemoryCopy
from fleetx.fleet.saving.session_checkpoints import Checkpoints
from fleetx.fleet.servers.job import ServerJob, is_server_job
from fleetx.fleet.servers.local_rows import LocalRows, OnePair
from fleetx.fleet.shared_values import SharedValues
from fleetx.fleet.strategy.agreement_card import how_it_is_trained, what_is_trained, what_was_asked
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.fleet.utilities import UtilBase, split_files
from fleetx.runtime import cpu_isa
from fleetx.runtime.elastic_environment import find_place
from fleetx.runtime.environment import state_memory
from fleetx.runtime.worker_environment import detect
from fleetx.step.technique import Technique

logger = logging.getLogger("fleetx.fleet")

_Module = TypeVar("_Module", bound=nn.Module)


class Fleet(Composition, Checkpoints, SharedValues):
    """One worker's view of the training job."""

    def __init__(self) -> None:
        self._background = BackgroundSaving()
        self._eager = self._new_eager()
        self._begin()

    def _begin(self) -> None:
        """Reset all state to that before `init`; nothing of an earlier session is kept."""
        self._role_maker: RoleMakerBase | None = None
        self._strategy: Any = None
        self._user_optimizer: Any = None
        self._distributed_optimizer: Any = None
        self._collective: Any = None  # the programs that minimize has written
        self._is_collective = False
        self._servers: ServerJob | None = None  # in a job with parameter servers
        self._rows: LocalRows | OnePair = LocalRows()  # of embeddings
        self._elastic: ElasticTraining | None = None  # in an elastic job
        self._util: UtilBase | None = None
        self._eager.end()
        self._eager = self._new_eager()
        self._applied: list[Technique] = []
        self._memory = MemoryCopy(state_memory())

    # -- joining the job --------------------------------------------------------------
    def init(
        self,
        role_maker: RoleMakerBase | None = None,
        is_collective: bool = False,
        strategy: Any = None,
        *,
        timeout_seconds: float = 300.0,
        wait: bool = True,
    ) -> Fleet:
        """Determine the role of this worker and connect it to the others.

        With a user-defined role maker, workers connect when they first communicate.

        Args:
            role_maker: provides the role of this process; by default read from the environment of
                any launcher (under mpirun, MPISymetricRoleMaker unless `is_collective`).
            is_collective: workers train by collective communication; otherwise with parameter
                servers, or alone.
            strategy: a DistributedStrategy; the default one if None.
            timeout_seconds: how long to wait for workers that have not joined yet.
            wait: connect to the others now; otherwise when this worker first communicates.
        """
        if not isinstance(is_collective, bool):
            raise ValueError(f"`is_collective` should be instance of bool, not {is_collective!r}.")
        if role_maker is not None and not isinstance(role_maker, RoleMakerBase):
            raise ValueError(
                f"`role_maker` should be subclass of RoleMakerBase, but got {type(role_maker)}"
            )
        if self._elastic is not None:
            raise RuntimeError("a worker of an elastic job calls fleet.init once.")
        self._begin()
        comm.cancel_meeting()
        cpu_isa.prepare_process()
        role = role_maker or default_role_maker(is_collective)
        role.generate_role()
        self._role_maker = role
        self._is_collective = is_collective or role.is_collective
        self._take_strategy(DistributedStrategy() if strategy is None else strategy)
        self._util = UtilBase(role)
        if is_server_job(role):
            self._servers = ServerJob(role)
            self._rows = self._servers.rows
        place = find_place() if self._is_collective else None
        if place is not None:
            self._elastic = ElasticTraining(place, role, timeout_seconds)
            self._eager.join(self._elastic)
        elif self._is_collective:
            role.connect(
                timeout_seconds=timeout_seconds,
                asked=what_was_asked("fleet.init", self._strategy),
                later=not wait or isinstance(role, UserDefinedRoleMaker),
            )
        elif role.is_non_distributed() and detect().world_size > 1:
            raise ValueError(
                f"{detect().world_size} workers were started, but fleet.init() was called without "
                "is_collective: call fleet.init(is_collective=True)."
            )
        watch_exit(self)
        observe_session(role, has_group=self._is_collective and place is None)
        return self

    def _take_strategy(self, strategy: Any) -> None:
        """Store a copy of a strategy; reject switches that FleetX does not support."""
        _check_kind(strategy)
        refused = strategy.refused() if hasattr(strategy, "refused") else []
        if refused:
            raise ValueError(
                f"the strategy switches on {', '.join(refused)}, which FleetX cannot do yet: "
                "switch it off."
            )
        self._strategy = copy.deepcopy(strategy)

    # -- communication -----------------------------------------------------------------
    def barrier_worker(self) -> None:
        """Wait until all workers have reached this point."""
        if self._servers is not None:
            self._servers.barrier()
        elif self._elastic is not None:
            refuse("a barrier", "leave it out, or start fleetrun without --elastic")
        else:
            comm.barrier()

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Sum a 1-D array over all workers into `output`, in place."""
        total = self._role.all_reduce(np.asarray(input))
        np.copyto(output, total.astype(np.asarray(output).dtype))

    def split_files(self, files: list[str]) -> list[str]:
        """Return this worker's shard of a list of files, contiguous and of nearly equal size."""
        return split_files(files, self.worker_index(), self.worker_num())

    def _in_server_job(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Call a method of the job with servers; in other jobs, only warn."""
        self._role  # noqa: B018 - raises if init was not called
        if self._servers is None:
            logger.warning("You should not call '%s' method for collective mode.", name)
        else:
            getattr(self._servers, name)(*args, **kwargs)

    def init_worker(self, *, at_once: bool = True) -> None:
        """Connect to the parameter servers; if not `at_once`, when a program first needs them."""
        self._in_server_job("init_worker", at_once=at_once)

    def init_server(self, *args: Any, **kwargs: Any) -> None:
        """Prepare a parameter server: `init_server(model_dir)` loads what was saved."""
        self._in_server_job("init_server", *args, **kwargs)

    def run_server(self) -> None:
        """Run a parameter server until all workers have finished."""
        self._in_server_job("run_server")

    def stop_worker(self) -> None:
        """Disconnect from the parameter servers; they shut down when the last worker has."""
        self._in_server_job("stop_worker")

    def resize_servers(self, servers: int) -> None:
        """Change the number of parameter servers: tables move between two of the following steps,
        once the new servers have started. Only the first worker's call counts.
        """
        if self._servers is None:
            raise RuntimeError(f"fleet.resize_servers({servers}): this job has no servers.")
        self._servers.resize(servers)

    # -- training ---------------------------------------------------------------------
    def distributed_model(self, model: _Module) -> _Module:
        """Return the model with gradients averaged over all workers, and with rank 0's values."""
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"distributed_model takes a torch.nn.Module, not {type(model).__name__}."
            )
        refuse_other_wrappers(model)
        self._role  # noqa: B018 - raises if init was not called
        if self.is_server():
            return model
        comm.meet()
        if comm.is_connected():
            comm.agree_on({"the call": "fleet.distributed_model"}, what_is_trained(model))
        self._rows.take_model(model, self.worker_num())
        strategy = self._job().strategy
        wrapped: Any = convert_sync_batch_norm(model) if strategy.sync_batch_norm else model
        wrapped = self._eager.model(wrapped, find_unused_parameters=strategy.find_unused_parameters)
        self._check_rows()
        return wrapped  # type: ignore[no-any-return] # it looks like its module

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> Any:
        """Return an optimizer that trains on all workers.

        For a torch optimizer, the result also has Fleet's methods; for an optimizer of programs,
        its `minimize` adds the communication to the program.
        """
        self._role  # noqa: B018 - raises if init was not called
        if strategy is not None:
            self._take_strategy(strategy)
        self._user_optimizer = optimizer
        comm.agree_on(what_was_asked("fleet.distributed_optimizer", self._strategy))
        if isinstance(optimizer, torch.optim.Optimizer):
            if self.is_server():
                self._distributed_optimizer = optimizer
                return optimizer
            comm.meet()
            if comm.is_connected():
                comm.agree_on(
                    {"the call": "fleet.distributed_optimizer"}, how_it_is_trained(optimizer)
                )
            self._rows.take_optimizer(optimizer)
            if not self._eager.has_models_with(self._job()):
                raise ValueError(
                    "fleet.distributed_model has already been called with another strategy: give "
                    "the strategy to fleet.init, or call fleet.distributed_optimizer first."
                )
            self._distributed_optimizer = self._eager.optimizer(optimizer)
            self._check_rows()
            return self._distributed_optimizer
        from fleetx.fleet.collective.program_optimizer import StaticDistributedOptimizer
        from fleetx.static.optimizer import Optimizer

        if not isinstance(optimizer, Optimizer) and not hasattr(optimizer, "apply_gradients"):
            raise TypeError(
                "distributed_optimizer takes a torch.optim.Optimizer or an optimizer of "
                "fleetx.static, not "
                f"{type(optimizer).__name__}."
            )
        self._distributed_optimizer = StaticDistributedOptimizer(self, optimizer)
        return self._distributed_optimizer

    def _check_rows(self) -> None:
        """Reject techniques that do not support the rows of embeddings."""
        for pair in self._eager.pairs:
            if pair.optimizer is not None:
                self._rows.check(pair.step, pair.techniques)

    def join(self, model: nn.Module) -> AbstractContextManager[None]:
        """Allow different numbers of batches per worker: `with fleet.join(model):` around the loop.

        A worker that finishes early adds zero gradients to sums that are still divided by the
        number of all workers. Afterwards all workers have the parameters and the optimizer state of
        one that trained to the end.
        """
        self._role  # noqa: B018 - raises if init was not called
        if self._elastic is not None:
            refuse("fleet.join", "iterate over fleet.elastic_loader, which divides the data evenly")
        return uneven.join(model, self._distributed_optimizer)

    def elastic_loader(
        self,
        dataset: Any,
        batch_size: int | None = None,
        *,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        **options: Any,
    ) -> ElasticLoader:
        """Return a loader that yields every sample of an epoch once, for changing workers.

        Loop with `for epoch in loader.epochs(n):` around `for batch in loader:`. A step takes one
        batch per worker; with gradient_merge or localsgd, several.

        Args:
            dataset: a dataset with `__len__` and `__getitem__`, or a reader of samples, which is
            read into memory; or a `DataLoader` of your own with
                `batch_sampler=fleet.ElasticSampler(…)`, which has the settings below.
            batch_size: samples per worker: the global batch is scaled with the workers.
            global_batch_size: samples of all workers together: the global batch is kept, and each
                worker gets more samples if there are fewer workers.
            micro_batch_size: with global_batch_size, the samples that a worker computes at once: it
                gets its part of a step in several batches, whose gradients are added up.
            shuffle: use another order in each epoch, the same on all workers.
            seed: the seed of these orders.
            options: further options of `torch.utils.data.DataLoader`, such as num_workers.
        """
        place = self.worker_index(), self.worker_num()
        sizes = {"batch_size": batch_size, "global_batch_size": global_batch_size}
        given = {**sizes, "micro_batch_size": micro_batch_size, "shuffle": shuffle, "seed": seed}
        return ElasticLoader(loader_of(dataset, {**given, **options}), self._elastic, place)

    def share_state(self, **objects: Any) -> None:
        """Register stateful objects of the training, such as schedulers.

        In an elastic job, new workers receive their states, and they are restored if a step is
        discarded. In other jobs this does nothing.
        """
        self._role  # noqa: B018 - raises if init was not called
        if self._elastic is not None:
            self._elastic.share(objects)

    def _required_optimizer(self) -> Any:
        if self._distributed_optimizer is None:
            raise RuntimeError("call fleet.distributed_optimizer(optimizer) first.")
        return self._distributed_optimizer

    def minimize(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Minimize a loss with the distributed optimizer."""
        return self._required_optimizer().minimize(
            loss, startup_program, parameter_list, no_grad_set
        )

    def step(self) -> None:
        """Update the parameters (PyTorch)."""
        self._required_optimizer().step()

    def clear_grad(self) -> None:
        """Clear the gradients (PyTorch)."""
        self._required_optimizer().clear_grad()

    def get_lr(self) -> float:
        """Return the learning rate."""
        return float(self._required_optimizer().get_lr())

    def set_lr(self, value: float) -> None:
        """Set the learning rate."""
        self._required_optimizer().set_lr(value)

    def state_dict(self) -> Any:
        """Return the optimizer's state."""
        return self._required_optimizer().state_dict()

    def set_state_dict(self, state_dict: Any) -> None:
        """Load the optimizer's state."""
        self._required_optimizer().set_state_dict(state_dict)

    # -- programs ---------------------------------------------------------------------
    @property
    def main_program(self) -> Any:
        """The training program with communication; None before `minimize`."""
        return None if self._collective is None else self._collective.main

    @property
    def startup_program(self) -> Any:
        """The startup program; None before `minimize`."""
        return None if self._collective is None else self._collective.startup

    @property
    def _origin_program(self) -> Any:
        return None if self._collective is None else self._collective.origin


def _check_kind(strategy: Any) -> None:
    """Reject what is not a strategy: a mapping of switches, or a class instead of an instance."""
    if isinstance(strategy, Mapping):
        switches = "; ".join(f"strategy.{name} = {value!r}" for name, value in strategy.items())
        raise TypeError(
            f"strategy is a {type(strategy).__name__}, but switches are set on an object: "
            f"strategy = fleet.DistributedStrategy(){'; ' if switches else ''}{switches}."
        )
    if isinstance(strategy, type | str | bytes | int | float | list | tuple | set):
        raise TypeError(
            f"strategy takes a fleet.DistributedStrategy(), not {strategy!r}: create one, and set "
            "its switches."
        )
