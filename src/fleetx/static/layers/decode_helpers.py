"""Decoding with a cell: where the next input of each step comes from.

A `DecodeHelper` chooses: the given sequence while training, the likeliest or a sampled token while
generating. `BasicDecoder` joins a cell and a helper.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.compare import equal
from fleetx.static.layers.creation import fill_constant, fill_constant_batch_size_like
from fleetx.static.layers.decode import Decoder
from fleetx.static.layers.nn import softmax
from fleetx.static.layers.random import sampling_id
from fleetx.static.layers.search import argmax
from fleetx.static.layers.slicing import pad
from fleetx.static.layers.structure import map_structure


class DecodeHelper:
    """Makes the inputs of a decoder's steps."""

    def initialize(self) -> tuple[Any, Variable]:
        """Return the inputs of the first step, and which instances have none."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize().")

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """Return the token that each instance's output stands for."""
        raise NotImplementedError(f"{type(self).__name__} must define sample().")

    def next_inputs(
        self, time: Variable, outputs: Any, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """Return what is finished after this step, the next inputs and the next states."""
        raise NotImplementedError(f"{type(self).__name__} must define next_inputs().")


class TrainingHelper(DecodeHelper):
    """Feeds the steps of a given sequence, as is done while training.

    Args:
        inputs: one or nested Variables [batch, steps, ...].
        sequence_length: how many steps each instance has.
        time_major: whether inputs are [steps, batch, ...].
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        self.inputs = inputs
        self.sequence_length = sequence_length
        self.time_major = time_major
        # one step more, so that the last step has a next one to read
        self._padded = map_structure(self._pad, inputs)

    def _pad(self, x: Variable) -> Variable:
        paddings = [0, 0] * len(x.shape)
        paddings[1 if self.time_major else 3] = 1
        return pad(x, paddings)

    def initialize(self) -> tuple[Any, Variable]:
        """Return the first step of the inputs; instances without steps are finished."""
        none = fill_constant([1], self.sequence_length.dtype, 0)
        first = map_structure(lambda x: x[0] if self.time_major else x[:, 0], self.inputs)
        return first, equal(self.sequence_length, none)

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """Return the likeliest token."""
        return argmax(outputs, axis=-1)

    def next_inputs(
        self, time: Variable, outputs: Any, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """Return the next step of the inputs; what was sampled has no effect."""
        from fleetx.static import layers

        if time.dtype != VarType.INT32:
            time = layers.cast(time, "int32")
        if self.sequence_length.dtype != time.dtype:
            self.sequence_length = layers.cast(self.sequence_length, time.dtype)
        following = time + 1
        finished = layers.less_equal(self.sequence_length, following)
        axes = [0 if self.time_major else 1]

        def at(x: Variable) -> Variable:
            part = layers.slice(x, axes=axes, starts=[following], ends=[following + 1])
            return layers.squeeze(part, axes=axes)

        return finished, map_structure(at, self._padded), states


class GreedyEmbeddingHelper(DecodeHelper):
    """Feeds the likeliest token of each step to the next one.

    Args:
        embedding_fn: turns tokens into inputs.
        start_tokens: the first token of each instance, shape [batch].
        end_token: the token that ends an instance.
    """

    def __init__(
        self, embedding_fn: Callable[[Variable], Any], start_tokens: Variable, end_token: int
    ) -> None:
        self.embedding_fn = embedding_fn
        self.start_tokens = start_tokens
        self.end_token = fill_constant([1], "int64", end_token)

    def initialize(self) -> tuple[Any, Variable]:
        """Return the start tokens as inputs; nothing is finished."""
        finished = fill_constant_batch_size_like(
            self.start_tokens, shape=[-1], dtype="bool", value=False, force_cpu=True
        )
        return self.embedding_fn(self.start_tokens), finished

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """Return the likeliest token."""
        return argmax(outputs, axis=-1)

    def next_inputs(
        self, time: Variable, outputs: Any, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """Return the sampled tokens as next inputs; the end token finishes an instance."""
        return equal(sample_ids, self.end_token), self.embedding_fn(sample_ids), states


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Feeds a token drawn from each step's distribution to the next one.

    Args:
        embedding_fn: turns tokens into inputs.
        start_tokens: the first token of each instance, shape [batch].
        end_token: the token that ends an instance.
        softmax_temperature: what outputs are divided by first; below 1 the likely get likelier.
        seed: the seed of the drawing.
    """

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Any],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        self.softmax_temperature = (
            None
            if softmax_temperature is None
            else fill_constant([1], "float32", softmax_temperature)
        )
        self.seed = seed

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """Return a token drawn from the softmax of the outputs."""
        if self.softmax_temperature is not None:
            outputs = outputs / self.softmax_temperature
        shares = softmax(outputs)
        shares.stop_gradient = True
        return sampling_id(shares, seed=self.seed or 0, dtype=self.start_tokens.dtype)


class BasicDecoder(Decoder):
    """Steps a cell with the inputs that a helper makes.

    Args:
        cell: an RNNCell, or a function of inputs and states.
        helper: makes the inputs.
        output_fn: applied to what the cell returns, before tokens are chosen.
    """

    class OutputWrapper(namedtuple("OutputWrapper", ("cell_outputs", "sample_ids"))):
        """Outputs of a step: the cell's outputs and the tokens chosen from them."""

    def __init__(
        self, cell: Any, helper: DecodeHelper, output_fn: Callable[[Any], Any] | None = None
    ) -> None:
        self.cell = cell
        self.helper = helper
        self.output_fn = output_fn

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Return the helper's first inputs, the given states, and what is finished."""
        inputs, finished = self.helper.initialize()
        return inputs, inits, finished

    def step(
        self, time: Variable, inputs: Any, states: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any, Variable]:
        """Run the cell, choose tokens, make the next inputs."""
        outputs, states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        tokens = self.helper.sample(time=time, outputs=outputs, states=states)
        tokens.stop_gradient = True
        finished, inputs, states = self.helper.next_inputs(
            time=time, outputs=outputs, states=states, sample_ids=tokens
        )
        return self.OutputWrapper(outputs, tokens), states, inputs, finished


export_defined(globals())
