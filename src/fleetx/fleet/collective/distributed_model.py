"""The distributed model of the eager front end, which still looks like the user's module.

Attributes, names of parameters and state_dict are those of the module inside, with one worker as
with many, so that scripts, checkpoints and libraries that look into a model work as before. If
gradients are averaged during backward, the module runs in a DistributedDataParallel; other
techniques exchange later and only need equal initial parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fleetx.comm import world
from fleetx.comm.divided_tensors import divided_like, is_divided, whole
from fleetx.fleet.collective.batch_methods import BATCH_METHODS
from fleetx.fleet.collective.embedding_errors import outside_embedding
from fleetx.fleet.collective.foreign_wrappers import (
    FleetWrapper,
    refuse_foreign_ddp,
    refuse_outer_wrapper,
)
from fleetx.fleet.collective.gradient_watch import GradientWatch
from fleetx.runtime import heartbeat
from fleetx.static.run.feeding import warn_of_empty_batch
from fleetx.step.train_step import Batches

_UNFINISHED = "Expected to have finished reduction in the prior iteration"


class LooksLikeItsModule(FleetWrapper, nn.Module):
    """A wrapper with the attributes, names and state of the module inside.

    Attributes set on the wrapper are set on the module, where its methods see them. Copies,
    including pickled ones, train locally without communication.
    """

    # What `_keep` sets.
    _inner: nn.Module
    _is_checked: bool
    _taken: list[nn.Parameter]
    _batches: Batches | None

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        del self.__dict__["training"]  # it is the module's
        nn.Module.__setattr__(self, "module", module)
        # `_inner` is `module` where it is found faster.
        self._keep(_inner=module, _taken=list(module.parameters()), _batches=None)

    def _keep(self, **own: Any) -> None:
        """Set attributes of the wrapper itself; a module among them is not registered as a
        submodule.
        """
        self.__dict__.update(own)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
        return self._inner(*args, **kwargs)

    def no_sync(self) -> AbstractContextManager[Any]:
        """Keep the gradients of forward passes in this context on this worker, to be averaged with
        those of a later one: for accumulating gradients over several backward passes."""
        return nullcontext()

    def _check_once(self) -> None:
        """Reject, at the first forward pass, a model that another library has changed."""
        refuse_outer_wrapper(self, self.module)
        self._keep(_is_checked=True)

    @property
    def taken(self) -> list[nn.Parameter]:
        """The parameters that workers exchange: those of the module when it was wrapped."""
        return self._taken

    @property
    def batches(self) -> Batches | None:
        """The runner of whole batches, in a pipeline."""
        return self._batches

    def meet_batch(self, inputs: Any, targets: Any, loss_fn: Callable[..., Any]) -> None:
        """Called with a batch before `train_batch` trains on it."""

    @property
    def gradient_watch(self) -> GradientWatch | None:
        """The check of gradients that backward averages; None if it does not average them."""
        return None

    # -- attributes -------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = super().__getattr__("module")
            if name in BATCH_METHODS and not hasattr(module, name):
                return partial(BATCH_METHODS[name], self)
            return getattr(module, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module; an error about an index names the embedding and the id."""
        if self.training:
            for value in args:
                if isinstance(value, torch.Tensor) and value.dim() and not value.shape[0]:
                    warn_of_empty_batch("an argument of the model", value)
        try:
            return super().__call__(*args, **kwargs)
        except (IndexError, RuntimeError) as error:
            reason = outside_embedding(error, self.module)
            if reason is None:
                raise
            raise IndexError(reason) from error

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or hasattr(type(self), name):
            super().__setattr__(name, value)
            return
        self._refuse_unknown_parameters(name, value)
        setattr(self.module, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self.module, name)

    def _refuse_unknown_parameters(self, name: str, value: Any) -> None:
        """Raise RuntimeError for added parameters, which workers would not exchange."""
        found = list(value.parameters()) if isinstance(value, nn.Module) else [value]
        known = {id(p) for p in self.taken}
        is_new = any(isinstance(p, nn.Parameter) and id(p) not in known for p in found)
        if is_new or name == "module":
            raise RuntimeError(
                f"{name!r} cannot be set on a model that fleet.distributed_model has returned, "
                "because workers exchange only the parameters it had then: set it on the model "
                "before that call."
            )

    def register_buffer(self, *args: Any, **kwargs: Any) -> None:
        """Register a buffer of the module."""
        self.module.register_buffer(*args, **kwargs)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Reject a new parameter, which workers would not exchange."""
        self._refuse_unknown_parameters(name, param)
        self.module.register_parameter(name, param)

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """Add a module without parameters of its own."""
        self._refuse_unknown_parameters(name, module)
        self.module.add_module(name, module)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]  # type: ignore[index]  # of nn.Sequential and the like

    def __len__(self) -> int:
        return len(self.module)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True

    # -- parts ------------------------------------------------------------------------
    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over the module's parameters, under its own names."""
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Iterate over the module's buffers, under its own names."""
        return self.module.named_buffers(*args, **kwargs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:  # type: ignore[override]
        """Iterate over the module and its children, under its own names."""
        return self.module.named_modules(*args, **kwargs)

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """Iterate over the module's children, under its own names."""
        return self.module.named_children()

    def apply(self, fn: Callable[[nn.Module], None]) -> LooksLikeItsModule:  # type: ignore[override]
        """Call a function with every part of the module, and with the module."""
        self.module.apply(fn)
        return self

    def train(self, mode: bool = True) -> LooksLikeItsModule:  # type: ignore[override]
        """Set the module to training or to evaluation."""
        self.module.train(mode)
        return self

    def _apply(self, *args: Any, **kwargs: Any) -> LooksLikeItsModule:  # type: ignore[override]
        self.module._apply(*args, **kwargs)
        return self

    # -- state ------------------------------------------------------------------------
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the user's module, under its own names.

        All workers must call it if each has a part of the parameters (`sharding`, stage 3).
        """
        state = self.module.state_dict(*args, **kwargs)
        if any(map(is_divided, state.values())):
            return type(state)((name, whole(value)) for name, value in state.items())
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a state of the user's module."""
        if assign:
            raise RuntimeError(
                "load_state_dict(…, assign=True) replaces the parameters that workers exchange: "
                "leave assign out, or load before fleet.distributed_model."
            )
        own = dict(self.module.named_parameters(remove_duplicate=False))
        if any(map(is_divided, own.values())):
            state_dict = {n: divided_like(v, own.get(n)) for n, v in state_dict.items()}
        return self.module.load_state_dict(state_dict, strict=strict)

    def __deepcopy__(self, memo: dict[int, Any]) -> LooksLikeItsModule:
        made = LocalModel(copy.deepcopy(self.module, memo))
        memo[id(self)] = made
        return made

    def __reduce__(self) -> Any:
        return LocalModel, (self.module,)

    def _replicate_for_data_parallel(self) -> Any:
        raise TypeError(
            "the model that fleet.distributed_model returned is wrapped by DataParallel too: start "
            "a worker per device with fleetrun instead."
        )


class LocalModel(LooksLikeItsModule):
    """A module whose backward stays on this worker."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self._keep(_is_checked=True)

    def start_equal(self) -> None:
        """Receive rank 0's values; from now on, raise an error if DDP wraps the module."""
        module = self.module
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data.copy_(world.broadcast(tensor.data))
        module.register_forward_pre_hook(refuse_foreign_ddp)
        self._keep(_is_checked=False)

    def take_parameters(self) -> None:
        """Note the parameters that the module has now."""
        self._keep(_taken=list(self.module.parameters()))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
        if not self._is_checked:
            self._check_once()
        if not torch.compiler.is_compiling():
            heartbeat.show_life()
        return self._inner(*args, **kwargs)


class DistributedModel(LooksLikeItsModule):
    """A module whose gradients are averaged over all workers during backward."""

    _averaging: GradientAveraging

    exchanges_parameters = False
    """Workers exchange parameters too, after updates."""

    def __init__(self, averaging: GradientAveraging) -> None:
        super().__init__(averaging.module)
        self._keep(_averaging=averaging, _is_checked=False)

    @property
    def averaging(self) -> GradientAveraging:
        """The DistributedDataParallel around the module."""
        return self._averaging

    @property
    def gradient_watch(self) -> GradientWatch:
        """The check that gradients are averaged."""
        return self.averaging.watch

    def no_sync(self) -> AbstractContextManager[Any]:
        """Keep the gradients of forward passes in this context on this worker."""
        return self.averaging.no_sync()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, and let backward average."""
        if not self._is_checked:
            self._check_once()
        refuse_foreign_ddp(self._inner)
        if not torch.compiler.is_compiling():
            heartbeat.show_life()
        return self._averaging(*args, **kwargs)


class GradientAveraging(FleetWrapper, DistributedDataParallel):
    """Torch's DDP, with a hook that detects gradients which bypass its reducer."""

    watch: GradientWatch

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, and let backward average."""
        try:
            result = super().forward(*args, **kwargs)
        except RuntimeError as error:
            if _UNFINISHED not in str(error):
                raise
            raise RuntimeError(self.watch.explain_unused()) from error
        if torch.is_grad_enabled():
            self.watch.begin_pass(averages=self.require_backward_grad_sync)
        return result

    def _sync_buffers(self) -> None:
        with heartbeat.collective("broadcast of buffers"):
            super()._sync_buffers()

    def leave(self) -> None:
        """Release the process group: the reducer holds it, with its communication hooks."""
        self.watch.end()
        self.reducer = self.logger = self.process_group = None  # type: ignore[assignment]
