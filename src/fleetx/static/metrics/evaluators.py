"""Evaluators of Fluid: metrics whose sums are variables of the program, reset and read by runs.

`metrics_of_1x` has the same metrics in Python, which leave the program as it is.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static import layers, unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.program import Program, program_guard
from fleetx.static.graph.variable import Variable

Array = np.ndarray[Any, Any]


class Evaluator:
    """The base of evaluators: variables that sum up over batches."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        kind = type(self).__name__
        warnings.warn(
            f"fluid.evaluator.{kind} changes the program; prefer fluid.metrics.{kind}.",
            stacklevel=3,
        )
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []
        self.helper = LayerHelper(name, **kwargs)
        if self.helper.main_program.current_block().idx != 0:
            raise ValueError(f"Create a {kind} in the outermost block of a program.")

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Set the sums to zero, at the beginning of a pass."""
        program = Program() if reset_program is None else reset_program
        with program_guard(program):
            for state in self.states:
                out = _in_block(program, state)
                layers.fill_constant(out.shape, out.dtype, 0.0, out=out)
        executor.run(program)

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, ...]:
        """Return the metrics over all batches since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} has no eval.")

    def _create_state(self, suffix: str, dtype: Any, shape: list[int]) -> Variable:
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)
        self.states.append(state)
        return state

    def _sum_up(self, suffix: str, dtype: str, value: Variable) -> None:
        state = self._create_state(suffix, dtype, [1])
        setattr(self, suffix, state)
        layers.sums([state, value], out=state)

    def _totals(self, executor: Any, program: Program | None) -> list[float]:
        program = Program() if program is None else program
        fetched = executor.run(program, fetch_list=[_in_block(program, s) for s in self.states])
        return [float(np.asarray(value).reshape(-1)[0]) for value in fetched]


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of chunks, over batches; see `layers.chunk_eval`."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: list[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        precision, recall, f1, *counts = layers.chunk_eval(
            input, label, chunk_scheme, num_chunk_types, excluded_chunk_types
        )
        names = "num_infer_chunks", "num_label_chunks", "num_correct_chunks"
        for name, count in zip(names, counts, strict=True):
            self._sum_up(name, "int64", count)
        self.metrics += [precision, recall, f1]

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, ...]:
        """Return precision, recall and F1 over all batches since the last reset."""
        inferred, labelled, correct = self._totals(executor, eval_program)
        precision = correct / inferred if inferred else 0.0
        recall = correct / labelled if labelled else 0.0
        f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
        return tuple(np.array([value], "float32") for value in (precision, recall, f1))


class EditDistance(Evaluator):
    """The average edit distance, and the share of sequences with errors, over batches."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        ignored_tokens: list[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__("edit_distance", **kwargs)
        distances, count = layers.edit_distance(input, label, ignored_tokens=ignored_tokens)
        zero = layers.fill_constant([1], "float32", 0.0)
        right = layers.reduce_sum(layers.cast(layers.equal(distances, zero), "int64"))
        errors = layers.elementwise_sub(count, right)
        total = layers.reduce_sum(distances)
        self._sum_up("total_distance", "float32", total)
        self._sum_up("seq_num", "int64", count)
        self._sum_up("instance_error", "int64", errors)
        self.metrics += [total, errors]

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, ...]:
        """Return the average distance and the share of sequences with errors."""
        distance, count, errors = self._totals(executor, eval_program)
        if not count:
            raise RuntimeError("EditDistance.eval has seen no sequence: run the program first.")
        return tuple(np.array([value / count], "float32") for value in (distance, errors))


def _in_block(program: Program, state: Variable) -> Variable:
    return program.global_block().create_var(
        name=state.name, shape=state.shape, dtype=state.dtype, persistable=True
    )


export_defined(globals())
