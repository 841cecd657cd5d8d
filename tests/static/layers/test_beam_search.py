"""Beam search on variable-length data. Expected values were checked against Paddle 1.8.5."""

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.readers.lod_tensor import create_lod_tensor

END = 0


@pytest.fixture(autouse=True)
def _program():
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        yield


def lod(array, lengths):
    return create_lod_tensor(np.asarray(array), lengths, static.CPUPlace())


def step(ids, scores, table, lengths, words=None, **options):
    """Run one step; return words, scores, parents and the lengths of the result."""
    data = {"ids": ids, "scores": scores, "table": table}
    if words is not None:
        data["words"] = words
    inputs = {
        name: static.data(name, [-1, np.shape(value)[1]], value.dtype.name, lod_level=2)
        for name, value in data.items()
    }
    outs = layers.beam_search(
        inputs["ids"],
        inputs["scores"],
        inputs.get("words"),
        inputs["table"],
        beam_size=2,
        end_id=END,
        return_parent_idx=True,
        **options,
    )
    feed = {name: lod(value, lengths) for name, value in data.items()}
    found = static.Executor().run(feed=feed, fetch_list=list(outs), return_numpy=False)
    return [np.asarray(v).flatten().tolist() for v in found] + [
        found[0].recursive_sequence_lengths()
    ]


def test_each_source_keeps_its_best_words():
    ids = np.array([[3], [4], [5]])
    scores = np.array([[0.0], [0.0], [0.0]], "float32")
    table = np.array([[0.1, 0.5, 0.2], [0.6, 0.3, 0.1], [0.2, 0.1, 0.7]], "float32")
    chosen, values, parents, lengths = step(ids, scores, table, [[2, 1], [1, 1, 1]])
    assert chosen == [1, 0, 2, 0]
    np.testing.assert_allclose(values, [0.5, 0.6, 0.7, 0.2])
    assert parents == [0, 1, 2, 2]
    assert lengths == [[2, 1], [1, 1, 2]]


def test_types_suffice_to_infer_a_step():
    block = static.default_main_program().global_block()
    scores = block.create_var(name="scores", dtype="float32", shape=None)
    ids = block.create_var(name="ids", dtype="int64", shape=None)
    words, values = layers.beam_search(ids, scores, None, scores, beam_size=2, end_id=END)
    assert (words.shape, words.lod_level) == ((-1, 1), 2)
    assert (values.shape, values.lod_level) == ((-1, 1), 2)


def test_words_may_be_given_and_probabilities_are_added_as_logarithms():
    ids, scores = np.array([[3]]), np.array([[-1.0]], "float32")
    table = np.array([[0.25, 0.5]], "float32")
    words = np.array([[7, 9]])
    chosen, values, _, _ = step(ids, scores, table, [[1], [1]], words=words, is_accumulated=False)
    assert chosen == [9, 7]
    np.testing.assert_allclose(values, np.log([0.5, 0.25]) - 1, rtol=1e-6)


def test_an_ended_beam_keeps_its_score_and_a_source_of_ended_beams_is_dropped():
    ids = np.array([[END], [4], [END], [END]])
    scores = np.array([[0.9], [0.1], [0.5], [0.4]], "float32")
    table = np.full((4, 3), 0.2, "float32")
    table[1, 2] = 0.8
    chosen, values, parents, lengths = step(ids, scores, table, [[2, 2], [1, 1, 1, 1]])
    assert (chosen, parents) == ([END, 2], [0, 1])
    np.testing.assert_allclose(values, [0.9, 0.8])
    assert lengths == [[2, 2], [1, 1, 0, 0]]


def test_sequences_are_read_back_best_first():
    steps = [
        ([[3], [4]], [[-0.2], [-0.5]], [[1], [2]]),
        ([[END], [6]], [[-0.7], [-0.6]], [[2], [1, 1]]),
        ([[END], [7]], [[-0.7], [-0.9]], [[2], [1, 1]]),
    ]
    feed, arrays = {}, [None, None]
    for at, (ids, scores, lengths) in enumerate(steps):
        place = layers.fill_constant([1], "int64", at)
        for i, (value, kind) in enumerate(((ids, "int64"), (scores, "float32"))):
            name = f"{kind}_{at}"
            feed[name] = lod(np.array(value, kind), lengths)
            x = static.data(name, [-1, 1], kind, lod_level=2)
            arrays[i] = layers.array_write(x, place, arrays[i])
    outs = layers.beam_search_decode(*arrays, beam_size=2, end_id=END)
    ids, scores = static.Executor().run(feed=feed, fetch_list=list(outs), return_numpy=False)
    assert np.asarray(ids).tolist() == [3, END, 4, 6, 7]
    np.testing.assert_allclose(np.asarray(scores), [-0.2, -0.7, -0.5, -0.6, -0.9])
    assert ids.recursive_sequence_lengths() == [[2], [2, 3]]
