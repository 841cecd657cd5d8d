"""The common part of Paddle 1.x's fleets."""

import abc
from typing import Any

from fleetx.fleet.roles.identity import Identity
from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.fleet.session import Fleet as Session
from fleetx.fleet.utilities import split_files
from fleetx.static.mixed_precision import OptimizerWithMixedPrecision
from fleetx.static.optimizer import Optimizer, RecomputeOptimizer
from paddle.fluid.incubate.fleet.base.mode import Mode

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]


class Fleet(Identity, metaclass=abc.ABCMeta):
    """One worker's view of the training job."""

    def __init__(self, mode: Mode | None = None) -> None:
        self._mode = mode
        self._begin()

    def _begin(self) -> None:
        """Reset all state to that before `init`."""
        self._is_initialized = False
        self._optimizer: Any = None
        self._role_maker: Any = None

    def init(self, role_maker: Any = None) -> None:
        """Determine the role of this process."""
        if role_maker is not None and not isinstance(role_maker, RoleMakerBase):
            raise TypeError("role_maker must be a RoleMakerBase.")
        self._begin()
        self._role_maker = role_maker
        self._role_maker.generate_role()
        self._is_initialized = True

    @property
    def role_maker(self) -> Any:
        """The role maker of the job; None before `init`."""
        return self._role_maker

    def split_files(self, files: list[str]) -> list[str]:
        """Return this worker's shard of a list of files."""
        return split_files(files, self.worker_index(), self.worker_num())

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Sum 1-D arrays over all workers into `output`."""
        self._role_maker.all_reduce_worker(input, output)

    def barrier_worker(self) -> None:
        """Wait for all workers."""
        self._role_maker.barrier_worker()

    @abc.abstractmethod
    def init_worker(self) -> None: ...

    @abc.abstractmethod
    def init_server(self, model_dir: Any = None) -> None: ...

    @abc.abstractmethod
    def run_server(self) -> None: ...

    @abc.abstractmethod
    def stop_worker(self) -> None: ...

    @abc.abstractmethod
    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> Any: ...

    @abc.abstractmethod
    def save_inference_model(self, *args: Any, **kwargs: Any) -> Any: ...

    @abc.abstractmethod
    def save_persistables(self, *args: Any, **kwargs: Any) -> Any: ...


class SessionFleet(Fleet):
    """A fleet that delegates to a session of FleetX."""

    def _begin(self) -> None:
        super()._begin()
        self._session = Session()

    @property
    def startup_program(self) -> Any:
        """The startup program of this process's role; None before minimize."""
        return self._session.startup_program

    @property
    def main_program(self) -> Any:
        """The program of this process's role; None before minimize."""
        return self._session.main_program

    @property
    def _origin_program(self) -> Any:
        return self._session._origin_program

    def init_worker(self) -> None:
        """Connect a worker of a server job to the servers."""
        self._session.init_worker()

    def init_server(self, model_dir: Any = None) -> None:
        """Prepare a server, with the parameters saved in a folder if given."""
        self._session.init_server(model_dir)

    def run_server(self) -> None:
        """Serve until all workers have finished."""
        self._session.run_server()

    def stop_worker(self) -> None:
        """Flush and disconnect a worker of a server job from the servers."""
        self._session.stop_worker()

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Any = None,
        target_vars: Any = None,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> Any:
        """Save an inference model."""
        self._check_saving("save_inference_model", executor, main_program)
        return self._session.save_inference_model(
            executor, dirname, feeded_var_names, target_vars, main_program, export_for_deployment
        )

    @staticmethod
    @abc.abstractmethod
    def _check_saving(function: str, executor: Any, main_program: Any) -> None: ...


class DistributedOptimizer(metaclass=abc.ABCMeta):
    """An optimizer of programs that trains on all workers."""

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        if not isinstance(optimizer, Optimizer | OptimizerWithMixedPrecision | RecomputeOptimizer):
            raise TypeError(
                f"optimizer must be an instance of Optimizer, not {type(optimizer).__name__}."
            )
        self._optimizer = optimizer
        self._strategy = strategy

    @abc.abstractmethod
    def backward(self, *args: Any, **kwargs: Any) -> Any: ...

    @abc.abstractmethod
    def apply_gradients(self, params_grads: Any) -> Any: ...

    @abc.abstractmethod
    def minimize(self, *args: Any, **kwargs: Any) -> Any: ...


class PassingOptimizer(DistributedOptimizer):
    """A distributed optimizer whose backward pass and updates are the wrapped optimizer's."""

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Append the backward pass."""
        return self._optimizer.backward(*args, **kwargs)

    def apply_gradients(self, params_grads: Any) -> Any:
        """Append the updates."""
        return self._optimizer.apply_gradients(params_grads)
