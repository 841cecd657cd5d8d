"""Evaluators of `fluid.evaluator`: metrics whose counts are variables of the program itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.layers.compare import equal
from fleetx.static.layers.creation import fill_constant
from fleetx.static.layers.crf import edit_distance
from fleetx.static.layers.math import elementwise_sub, reduce_sum, sums
from fleetx.static.layers.metric import chunk_eval
from fleetx.static.layers.tensor import cast
from fleetx.static.metrics.detection_map import DetectionMAP, clear, same_variable
from fleetx.static.metrics.metrics_of_1x import ratio

__all__ = ["ChunkEvaluator", "DetectionMAP", "EditDistance", "Evaluator"]
Array = np.ndarray[Any, Any]


class Evaluator:
    """Base of evaluators: every run adds to `states`, `reset` sets them to 0.

    Args:
        name: the prefix of the states' names.
        kwargs: further arguments of the layer.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []
        self.helper = LayerHelper(name, **kwargs)
        if self.helper.main_program.current_block().idx != 0:
            raise ValueError("an Evaluator must be created in block 0 of its program.")

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Set the states to 0, at the start of a pass."""
        clear(executor, self.states, reset_program)

    def eval(self, executor: Any, eval_program: Program | None = None) -> Any:
        """Return the metrics of all batches since `reset`."""
        raise NotImplementedError(f"{type(self).__name__} does not define eval().")

    def _count(self, suffix: str, dtype: str, batch: Variable) -> Variable:
        """Create a state, and append the op that adds a batch's value to it."""
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=[1])
        self.helper.set_variable_initializer(state, Constant(0))
        self.states.append(state)
        sums([state, batch], out=state)
        return state

    def _values(self, executor: Any, program: Program | None) -> list[float]:
        """Return the states' values."""
        program = Program() if program is None else program
        found = [same_variable(program, state) for state in self.states]
        return [
            float(np.asarray(v).reshape(-1)[0]) for v in executor.run(program, fetch_list=found)
        ]


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of chunks; see `chunk_eval` for the arguments."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: list[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        found = chunk_eval(input, label, chunk_scheme, num_chunk_types, excluded_chunk_types)
        names = ("num_infer_chunks", "num_label_chunks", "num_correct_chunks")
        for name, batch in zip(names, found[3:], strict=True):
            setattr(self, name, self._count(name, "int64", batch))
        self.metrics.extend(found[:3])

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, ...]:
        """Return precision, recall and F1 of all batches since `reset`."""
        inferred, labelled, correct = self._values(executor, eval_program)
        precision, recall = ratio(correct, inferred), ratio(correct, labelled)
        score = ratio(2 * precision * recall, precision + recall)
        return tuple(np.array([v], "float32") for v in (precision, recall, score))


class EditDistance(Evaluator):
    """The mean edit distance, and the fraction of sequences with errors.

    Args:
        input: the predicted sequences of ids.
        label: the true sequences.
        ignored_tokens: ids to ignore.
    """

    def __init__(
        self,
        input: Variable,
        label: Variable,
        ignored_tokens: list[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__("edit_distance", **kwargs)
        distances, count = edit_distance(input, label, ignored_tokens=ignored_tokens)
        right = equal(distances, fill_constant([1], "float32", 0.0))
        wrong = elementwise_sub(count, reduce_sum(cast(right, "int64")))
        total = reduce_sum(distances)
        self.total_distance = self._count("total_distance", "float32", total)
        self.seq_num = self._count("seq_num", "int64", count)
        self.instance_error = self._count("instance_error", "int64", wrong)
        self.metrics.extend([total, wrong])

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, Array]:
        """Return mean distance and error rate of all batches since `reset`."""
        total, count, wrong = self._values(executor, eval_program)
        return (
            np.array([ratio(total, count)], "float32"),
            np.array([ratio(wrong, count)], "float32"),
        )
