"""Decoding with a cell: the source of the next input of each step.

A `DecodeHelper` provides it: the given sequence in training, the most likely or a sampled token in
generation. `BasicDecoder` combines a cell and a helper.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
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
    """Provides the inputs of a decoder's steps."""

    def initialize(self) -> tuple[Any, Variable]:
        """Return the inputs of the first step, and which instances have none."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize().")

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """Return the token chosen from each instance's output."""
        raise NotImplementedError(f"{type(self).__name__} must define sample().")

    def next_inputs(
        self, time: Variable, outputs: Any, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """Return which instances are finished, the next inputs and the next states."""
        raise NotImplementedError(f"{type(self).__name__} must define next_inputs().")


class TrainingHelper(DecodeHelper):
    """Feeds the steps of a given sequence, for training (teacher forcing).

    Args:
        inputs: one or nested Variables [batch, steps, ...].
        sequence_length: the number of steps of each instance.
        time_major: whether inputs are [steps, batch, ...].
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        self.inputs = inputs
        self.sequence_length = sequence_length
        self.time_major = time_major
        # one more step, so that the last step has a next one to read
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
        """Return the next step of the inputs; samples have no effect."""
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
    """Feeds the most likely token of each step to the next one.

    Args:
        embedding_fn: maps tokens to inputs.
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
    """Feeds a token sampled from each step's distribution to the next one.

    Args:
        embedding_fn: maps tokens to inputs.
        start_tokens: the first token of each instance, shape [batch].
        end_token: the token that ends an instance.
        softmax_temperature: divides the outputs; values below 1 sharpen the distribution.
        seed: the seed of sampling.
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
        """Sample a token from the softmax of the outputs."""
        if self.softmax_temperature is not None:
            outputs = outputs / self.softmax_temperature
        shares = softmax(outputs)
        shares.stop_gradient = True
        return sampling_id(shares, seed=self.seed or 0, dtype=self.start_tokens.dtype)


class BasicDecoder(Decoder):
    """Runs a cell on the inputs of a helper.

    Args:
        cell: an RNNCell, or a function of inputs and states.
        helper: provides the inputs.
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
        """Return the helper's first inputs, the given states, and which instances are finished."""
        inputs, finished = self.helper.initialize()
        return inputs, inits, finished

    def step(
        self, time: Variable, inputs: Any, states: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any, Variable]:
        """Run the cell, choose tokens, get the next inputs."""
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
