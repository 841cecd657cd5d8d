"""Optimizer: turns a loss into gradients and gradients into update ops.

`minimize` is `backward` (append_backward) and `apply_gradients`: clip, add weight decay, create the
accumulators and the learning rate, append one update op per parameter. A subclass defines its op,
its accumulators and the attributes of the op.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from fleetx.static.autodiff.backward import append_backward, names_in
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.clip import GradientClipBase, append_gradient_clip_ops, error_clip_callback
from fleetx.static.graph.default_programs import default_main_program, program_guard
from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.optimizer.accumulators import Accumulator, StateMixin
from fleetx.static.optimizer.learning_rate import LearningRateMixin, checked
from fleetx.static.optimizer.wrapped_optimizer import Minimizer
from fleetx.static.regularizer import append_regularization_ops


def require(owner: Any, **values: Any) -> None:
    """Reject settings that are None."""
    for name, value in values.items():
        if value is None:
            raise ValueError(f"{name} is not set: {type(owner).__name__} needs one.")


class Optimizer(Minimizer, LearningRateMixin, StateMixin):
    """Base of all optimizers.

    Args:
        learning_rate: a number, a Variable with one element, or an LRScheduler.
        parameter_list: parameters (or names) to update; all trainable ones by default.
        regularization: weight decay for parameters without a regularizer.
        grad_clip: the gradient clip.
        name: prefix of the accumulators' names.
    """

    type: str = ""
    accumulators: ClassVar[Sequence[Accumulator]] = ()
    exchanges_gradients: ClassVar[bool] = False
    """Whether `minimize` itself writes the gradient exchange between workers."""

    def __init__(
        self,
        learning_rate: Any,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        owner = self.__class__.__name__
        if grad_clip is not None and not isinstance(grad_clip, GradientClipBase):
            raise TypeError(
                f"grad_clip of {owner} must be a gradient clip such as GradientClipByGlobalNorm, "
                f"not {grad_clip.__class__.__name__}."
            )
        self._learning_rate = checked(learning_rate, owner)
        self._parameter_list = parameter_list
        self.regularization = regularization
        self._grad_clip = grad_clip
        self._name = name
        self._dtype: Any = None
        self._learning_rate_map: dict[Program, Variable] = {}
        if isinstance(self._learning_rate, Variable):
            self._learning_rate_map[default_main_program()] = self._learning_rate
        self._accumulators: dict[str, dict[str, Variable]] = defaultdict(dict)
        self._opti_name_list: list[str] = []
        self.helper: LayerHelper | None = None
        self._attrs: dict[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments, for an optimizer that replaces this one.

        Subclasses add those that other optimizers share.
        """
        return {
            "learning_rate": self._learning_rate,
            "parameter_list": self._parameter_list,
            "regularization": self.regularization,
            "grad_clip": self._grad_clip,
            "name": self._name,
        }

    @property
    def grad_clip(self) -> GradientClipBase | None:
        """The gradient clip."""
        return self._grad_clip

    def with_grad_clip(self, grad_clip: GradientClipBase | None) -> Self:
        """Return a copy with another gradient clip, which shares this one's state."""
        twin = copy.copy(self)
        twin._grad_clip = grad_clip
        return twin

    def share_state(self, other: Optimizer) -> None:
        """Share the learning rate variables and accumulators of another optimizer.

        For an optimizer that replaces another one: scripts still query the replaced one for its
        learning rate and its state.
        """
        self._learning_rate_map = other._learning_rate_map
        self._accumulators = other._accumulators
        self._opti_name_list = other._opti_name_list

    # -- what a subclass says ----------------------------------------------------------------------
    def _initial_value(self, accumulator: Accumulator) -> float:
        """Return the initial value of an accumulator."""
        return 0.0

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        """Return the attributes of a parameter's update op: by default the same for all."""
        return dict(self._attrs)

    def _op_inputs(self, param_and_grad: Any) -> dict[str, Any]:
        """Return the update op's inputs besides parameter, gradient and accumulators."""
        return {"LearningRate": [self._create_param_lr(param_and_grad)]}

    def _create_accumulators(self, block: Any, parameters: Sequence[Any]) -> None:
        for param in parameters:
            for item in self.accumulators:
                self._add_accumulator(
                    item.name, param, fill_value=self._initial_value(item), shape=item.shape
                )

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Operator:
        if not self.type:
            raise NotImplementedError("Optimizer is a base class; use one such as SGD or Adam.")
        param, grad = param_and_grad
        inputs = {"Param": [param], "Grad": [grad], **self._op_inputs(param_and_grad)}
        outputs = {"ParamOut": [param]}
        for item in self.accumulators:
            variable = self._get_accumulator(item.name, param)
            inputs[item.slot] = [variable]
            if item.out_slot is not None:
                outputs[item.out_slot] = [variable]
        return block.append_op(
            self.type, inputs, outputs, self._op_attrs(param), stop_gradient=True
        )

    def _finish_update(self, block: Any, parameters_and_grads: Sequence[Any]) -> None:
        """Append ops that follow all updates."""

    def for_program(self, program: Program) -> Any:
        """Return a new optimizer with the same settings for a copy of the program."""
        twin = copy.copy(self)
        twin._accumulators, twin._opti_name_list = defaultdict(dict), []
        twin._learning_rate_map, twin.helper = {}, None
        rate = self._learning_rate
        if isinstance(rate, Variable):
            twin._learning_rate = program.global_block().var(rate.name)
            twin._learning_rate_map[program] = twin._learning_rate
        return twin

    # -- the parts of minimize -------------------------------------------------------------------
    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Sequence[Any] | None = None,
        checkpoints: Sequence[Any] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Append the backward pass; return the pairs (parameter, gradient).

        Activations between `checkpoints`, if given, are recomputed.
        """
        self._dtype = loss.dtype
        with program_guard(loss.block.program, startup_program):
            return append_backward(
                loss,
                parameter_list or self._parameter_list,
                self._get_no_grad_set(loss, no_grad_set),
                [error_clip_callback] if callbacks is None else callbacks,
                checkpoints,
            )

    def apply_gradients(self, params_grads: Sequence[tuple[Any, Any]]) -> list[Operator]:
        """Append clipping, weight decay and updates to the default program; return the updates."""
        pairs: Any = sorted(params_grads, key=lambda pair: pair[0].name)
        default_main_program().binding.updated_by = self
        clip = append_gradient_clip_ops if self._grad_clip is None else self._grad_clip
        pairs = self.append_regularization_ops(clip(pairs), self.regularization)
        return self._create_optimization_pass(pairs)

    def append_regularization_ops(
        self, parameters_and_grads: Sequence[Any], regularization: Any = None
    ) -> list[tuple[Any, Any]]:
        """Add weight decay to the gradients; return the pairs."""
        return append_regularization_ops(parameters_and_grads, regularization)

    def _create_optimization_pass(self, parameters_and_grads: Sequence[Any]) -> list[Operator]:
        block = default_main_program().current_block()
        start = len(block.ops)
        self.helper = LayerHelper(self.__class__.__name__)
        trained = [(p, g) for p, g in parameters_and_grads if p.trainable]
        self._create_accumulators(block, [p for p, _ in trained])
        self._create_global_learning_rate()
        for pair in trained:
            if pair[1] is not None:
                with pair[0].block.program.optimized_guard(pair), name_scope("optimizer"):
                    self._append_optimize_op(block, pair)
        self._finish_update(block, parameters_and_grads)
        return block.slice_ops(start, len(block.ops))

    def _get_no_grad_set(self, loss: Variable, no_grad_set: Any = None) -> set[str]:
        """Return the names that get no gradient: the user's, and frozen parameters."""
        names = set(names_in(no_grad_set, "no_grad_set"))
        params = loss.block.program.global_block().all_parameters()
        return names | {p.name for p in params if p.trainable is False}


class OptimizerOf2x(Optimizer):
    """An optimizer whose `minimize` has the arguments of 2.x."""

    def minimize(  # type: ignore[override]
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameters: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        *,
        parameter_list: Sequence[Any] | None = None,
    ) -> tuple[list[Operator], list[tuple[Any, Any]]]:
        """Append gradients and updates that minimize `loss`; return (update ops, pairs).

        `parameter_list` is the name of `parameters` in 1.x.
        """
        chosen = parameter_list if parameters is None else parameters
        return super().minimize(loss, startup_program, chosen, no_grad_set)
