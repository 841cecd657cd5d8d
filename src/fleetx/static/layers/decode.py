"""Step-by-step decoding: the loop, and the interface of decoders."""

from __future__ import annotations

from typing import Any

from fleetx.static import layers
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.array import array_read, array_write, tensor_array_to_tensor
from fleetx.static.layers.control_flow import parent_of
from fleetx.static.layers.structure import map_structure, select_rows, swap_batch_and_time
from fleetx.static.layers.tensor import assign, cast
from fleetx.static.layers.while_loop import While
from fleetx.static.unique_name import generate

__all__ = ["Decoder", "dynamic_decode"]


class Decoder:
    """A decoder for `dynamic_decode`; subclasses define `initialize` and `step`."""

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Return the inputs and states of the first step, and which instances are finished."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize().")

    def step(
        self, time: Variable, inputs: Any, states: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any, Variable]:
        """Return outputs, next states, next inputs and which instances are finished."""
        raise NotImplementedError(f"{type(self).__name__} must define step().")

    def finalize(
        self, outputs: Any, final_states: Any, sequence_lengths: Variable
    ) -> tuple[Any, Any]:
        """Return the outputs of all steps and the final states in their final form."""
        raise NotImplementedError(f"{type(self).__name__} does not define finalize().")


class _Carried:
    """Nested values carried from step to step.

    Gradients need the values of all steps, so these are kept in arrays; `is_test` overwrites the
    variables of the initial values, as in Paddle.
    """

    def __init__(self, first: Any, step: Variable, overwrite: bool) -> None:
        self._variables, self._overwrite = first, overwrite
        if not overwrite:
            self._arrays = map_structure(lambda x: array_write(x, step), first)

    def read(self, step: Variable) -> Any:
        """Return the values of a step."""
        if self._overwrite:
            return self._variables
        return map_structure(lambda array: array_read(array, step), self._arrays)

    def write(self, values: Any, step: Variable) -> None:
        """Set the values of a step."""
        if self._overwrite:
            map_structure(assign, values, self._variables)
        else:
            map_structure(lambda x, array: array_write(x, step, array), values, self._arrays)


def _array_outside(like: Variable) -> Variable:
    """Return a new array in the parent of the current block."""
    block = parent_of(default_main_program().current_block())
    return block.create_var(
        name=generate("array") + ".out", type=VarType.LOD_TENSOR_ARRAY, dtype=like.dtype
    )


def _keep_finished(old: Variable, new: Variable, finished: Variable) -> Variable:
    """Return `old` for finished instances and `new` for the others."""
    kind = VarType.FP32 if old.dtype == VarType.BOOL else old.dtype
    mask = cast(finished, kind)
    mask.stop_gradient = True
    before, after = (v if v.dtype == kind else cast(v, kind) for v in (old, new))
    mixed = select_rows(mask, before, after)
    return mixed if kind == old.dtype else cast(mixed, old.dtype)


def dynamic_decode(
    decoder: Decoder,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Run a decoder until every instance is finished; return all outputs and the final states.

    Args:
        decoder: the decoder.
        inits: the argument of the decoder's `initialize`.
        max_step_num: the index of the last step, from 0.
        output_time_major: whether outputs are [steps, batch, ...] instead of [batch, steps, ...].
        impute_finished: whether finished instances keep their states.
        is_test: save memory if no gradients are needed; overwrites `inits`.
        return_length: whether to return the number of steps of each instance too.
        kwargs: passed to every step.
    """
    inputs, states, finished = decoder.initialize(inits)
    finished.stop_gradient = True
    step = layers.fill_constant([1], "int64", 0)
    going_on = layers.logical_not(layers.reduce_all(finished))
    last = None if max_step_num is None else layers.fill_constant([1], "int64", max_step_num)
    loop = While(going_on, is_test=is_test)
    lengths = layers.cast(layers.zeros_like(finished), "int64")
    lengths.stop_gradient = True
    carried_inputs = _Carried(inputs, step, is_test)
    carried_states = _Carried(states, step, is_test)
    with loop.block():
        inputs, states = carried_inputs.read(step), carried_states.read(step)
        outputs, next_states, next_inputs, ends = decoder.step(step, inputs, states, **kwargs)
        ends = layers.logical_or(ends, finished)
        counted = lengths + layers.cast(layers.logical_not(finished), "int64")
        if impute_finished:
            next_states = map_structure(
                lambda old, new: _keep_finished(old, new, finished), states, next_states
            )
        kept = map_structure(_array_outside, outputs)
        map_structure(lambda x, array: array_write(x, step, array), outputs, kept)
        layers.increment(step, value=1.0, in_place=True)
        carried_inputs.write(next_inputs, step)
        carried_states.write(next_states, step)
        layers.assign(ends, finished)
        layers.assign(counted, lengths)
        unfinished = layers.logical_not(layers.reduce_all(finished))
        if last is None:
            layers.assign(unfinished, going_on)
        else:
            layers.logical_and(unfinished, layers.less_equal(step, last), out=going_on)
    outputs = map_structure(lambda a: tensor_array_to_tensor(a, axis=0, use_stack=True)[0], kept)
    states = carried_states.read(step)
    if type(decoder).finalize is not Decoder.finalize:
        outputs, states = decoder.finalize(outputs, states, lengths)
    if not output_time_major:
        outputs = map_structure(swap_batch_and_time, outputs)
    return (outputs, states, lengths) if return_length else (outputs, states)
