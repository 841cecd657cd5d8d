"""Sequences of sequences through rank tables, splits and beams; offsets that stay in a scope."""

from __future__ import annotations

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.readers.lod_tensor import LoDTensor, create_lod_tensor


def nested(lengths: list[list[int]]) -> LoDTensor:
    rows = np.arange(sum(lengths[-1]), dtype="float32").reshape(-1, 1)
    return create_lod_tensor(rows, lengths, static.CPUPlace())


def test_a_rank_table_orders_sequences_of_sequences() -> None:
    x = static.data("x", [None, 1], "float32", lod_level=2)
    table = layers.lod_rank_table([x], level=0)
    out = layers.reorder_lod_tensor_by_rank(x, table)
    feed = {"x": nested([[1, 2], [2, 1, 3]])}
    executor = static.Executor(static.CPUPlace())
    (found,) = executor.run(feed=feed, fetch_list=[out], return_numpy=False)
    assert found.recursive_sequence_lengths() == [[2, 1], [1, 3, 2]]
    np.testing.assert_array_equal(np.array(found).ravel(), [2, 3, 4, 5, 0, 1])


def test_offsets_of_persistable_results_stay_in_the_scope() -> None:
    x = static.data("x", [None, 1], "float32")
    mask = static.data("mask", [None, 1], "bool")
    chosen, others = layers.split_lod_tensor(input=x, mask=mask)
    chosen.persistable = others.persistable = True
    scope = static.Scope()
    static.Executor(static.CPUPlace()).run(
        feed={"x": nested([[3, 6, 1]]), "mask": np.array([[False], [True], [False]])}, scope=scope
    )
    assert scope.find_var(chosen.name).get_tensor().recursive_sequence_lengths() == [[6]]
    assert scope.find_var(others.name).get_tensor().recursive_sequence_lengths() == [[3, 1]]


def test_a_wrong_keyword_in_place_of_a_right_one_is_named() -> None:
    x = static.data("x", [None, 1], "float32")
    mask = static.data("mask", [None, 1], "bool")
    with pytest.raises(TypeError, match="in_true"):
        layers.merge_lod_tensor(x_true=x, in_false=x, x=x, mask=mask)


def test_beams_repeat_values_with_two_open_dimensions() -> None:
    x = static.data("x", [None, None, 2], "float32")
    out = layers.BeamSearchDecoder.tile_beam_merge_with_batch(x, 2)
    values = np.arange(12, dtype="float32").reshape(2, 3, 2)
    executor = static.Executor(static.CPUPlace())
    (found,) = executor.run(feed={"x": values}, fetch_list=[out])
    np.testing.assert_array_equal(found, np.repeat(values, 2, axis=0))


def test_the_gradient_of_a_sequence_has_its_offsets() -> None:
    x = static.data("x", [None, 1], "float32", lod_level=1)
    x.stop_gradient = False
    static.append_backward(layers.reduce_sum(layers.sequence_pool(x, "sum")))
    executor = static.Executor(static.CPUPlace())
    (found,) = executor.run(feed={"x": nested([[2, 3]])}, fetch_list=["x@GRAD"], return_numpy=False)
    assert found.recursive_sequence_lengths() == [[2, 3]]
