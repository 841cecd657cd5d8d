"""Beam search over the steps of a cell, on dense tensors [batch, beam, ...]."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetx.static import layers
from fleetx.static.building.argument_checks import check_type
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.crf import gather_tree
from fleetx.static.layers.decode import Decoder
from fleetx.static.layers.structure import flatten, map_structure
from fleetx.static.layers.tensor import expand, reshape, unsqueeze

__all__ = ["BeamSearchDecoder"]

_NEVER = 1e9


def _reshaped(x: Variable, first: list[int], start: int) -> Variable:
    """Reshape x to `first` followed by its dimensions from `start`, unknown ones included."""
    rest: list[Any] = list(x.shape[start:])
    if -1 in rest:
        sizes = layers.shape(x)
        rest = [sizes[start + i] if size == -1 else size for i, size in enumerate(rest)]
    return reshape(x, [*first, *rest])


class BeamSearchDecoder(Decoder):
    """Keep the `beam_size` best partial sequences of each instance.

    Args:
        cell: an RNNCell, or a function of inputs and states, run on merged [batch * beam, ...].
        start_token: the first token.
        end_token: the token that ends a sequence.
        beam_size: the number of sequences to keep.
        embedding_fn: maps tokens to inputs.
        output_fn: maps the cell's outputs to logits over tokens.
    """

    class OutputWrapper(namedtuple("OutputWrapper", ("scores", "predicted_ids", "parent_ids"))):
        """Outputs of a step: scores, tokens, and the beam that each token extends."""

    class StateWrapper(
        namedtuple("StateWrapper", ("cell_states", "log_probs", "finished", "lengths"))
    ):
        """State carried from step to step."""

    def __init__(
        self,
        cell: Any,
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[[Variable], Any] | None = None,
        output_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        self.cell = cell
        self.start_token = start_token
        self.end_token = end_token
        self.beam_size = beam_size
        self.embedding_fn = embedding_fn
        self.output_fn = output_fn

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """Repeat every instance for each beam: [batch, ...] becomes [batch * beam, ...]."""
        check_type(x, "x", Variable, "BeamSearchDecoder.tile_beam_merge_with_batch")
        return _reshaped(_repeat(x, beam_size), [-1], 2)

    def _merge(self, x: Variable) -> Variable:
        return _reshaped(x, [-1], 2)

    def _split(self, x: Variable) -> Variable:
        return _reshaped(x, [-1, self.beam_size], 1)

    def _choose(self, x: Variable, places: Variable) -> Variable:
        """Gather, per instance, the entries of x at the given indices along dimension 1."""
        count = layers.cast(self._batch, places.dtype)
        count.stop_gradient = True
        rows = layers.unsqueeze(layers.range(0, count, 1, places.dtype), [1])
        at = layers.stack([layers.expand(rows, [1, self.beam_size]), places], axis=2)
        at.stop_gradient = True
        return layers.gather_nd(x, at)

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Return start tokens for every beam; all but the first have log probability -inf."""
        state = flatten(inits)[0]
        self._batch = layers.shape(state)[0]
        beams = self.beam_size
        self._end = layers.fill_constant([1], "int64", self.end_token)
        tokens = layers.fill_constant_batch_size_like(
            state, shape=[-1, beams], dtype="int64", value=self.start_token
        )
        scores = np.array([[0.0] + [-_NEVER] * (beams - 1)], "float32")
        log_probs = layers.expand(layers.assign(scores), [self._batch, 1])
        finished = layers.fill_constant_batch_size_like(
            state, shape=[-1, beams], dtype="bool", value=False, force_cpu=True
        )
        states = self.StateWrapper(
            map_structure(lambda x: _repeat(x, beams), inits),
            log_probs,
            finished,
            layers.zeros_like(tokens),
        )
        return self._embed(tokens), states, finished

    def _embed(self, tokens: Variable) -> Any:
        return tokens if self.embedding_fn is None else self.embedding_fn(tokens)

    def _scores(self, logits: Variable, states: Any) -> Variable:
        """Return the log probability of each sequence with each next token.

        A finished sequence continues with the end token only, at no cost.
        """
        tokens = logits.shape[-1]
        only_end = np.full(tokens, -_NEVER, "float32")
        only_end[self.end_token] = 0.0
        steps = layers.log(layers.softmax(logits))
        done = layers.cast(states.finished, steps.dtype)
        frozen = layers.expand(layers.unsqueeze(done, [2]), [1, 1, tokens])
        frozen = layers.elementwise_mul(frozen, layers.assign(only_end), axis=-1)
        steps = frozen - layers.elementwise_mul(steps, done - 1, axis=0)
        return layers.elementwise_add(steps, states.log_probs, axis=0)

    def _search(self, logits: Variable, cell_states: Any, states: Any) -> tuple[Any, Any]:
        tokens = logits.shape[-1]
        width = layers.fill_constant([1], "int64", tokens)
        flat = layers.reshape(self._scores(logits, states), [-1, self.beam_size * tokens])
        best, places = layers.topk(flat, k=self.beam_size)
        parents = layers.elementwise_floordiv(places, width)
        chosen = layers.elementwise_mod(places, width)
        finished = self._choose(states.finished, parents)
        lengths = self._choose(states.lengths, parents)
        lengths = lengths + layers.cast(layers.logical_not(finished), lengths.dtype)
        following = self.StateWrapper(
            map_structure(lambda x: self._choose(x, parents), cell_states),
            self._choose(flat, places),
            layers.logical_or(finished, layers.equal(chosen, self._end)),
            lengths,
        )
        return self.OutputWrapper(best, chosen, parents), following

    def step(
        self, time: Variable, inputs: Any, states: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any, Variable]:
        """Run the cell on all beams and keep the best continuations."""
        inputs = map_structure(self._merge, inputs)
        cell_states = map_structure(self._merge, states.cell_states)
        outputs, cell_states = self.cell(inputs, cell_states, **kwargs)
        outputs = map_structure(self._split, outputs)
        cell_states = map_structure(self._split, cell_states)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        found, following = self._search(outputs, cell_states, states)
        found.predicted_ids.stop_gradient = True
        return found, following, self._embed(found.predicted_ids), following.finished

    def finalize(
        self, outputs: Any, final_states: Any, sequence_lengths: Variable
    ) -> tuple[Any, Any]:
        """Return the tokens of whole sequences, backtracked through the beams."""
        return gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states


def _repeat(x: Variable, beams: int) -> Variable:
    """Repeat x `beams` times along a new dimension 1."""
    x = unsqueeze(x, [1])
    return expand(x, [1, beams, *[1] * (len(x.shape) - 2)])
