"""Decoding step by step: with given sequences, greedily, by sampling, by beam search."""

import itertools

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.layers.nn import embedding_v2

WORDS, WIDTH = 5, 4
START, END = 1, 2


@pytest.fixture(autouse=True)
def _program():
    scope = static.Scope()
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        static.default_startup_program().random_seed = 3
        with static.scope_guard(scope):
            yield


def embed(tokens):
    uniform = static.initializer.Uniform(-2.0, 2.0)
    return embedding_v2(
        tokens, [WORDS, WIDTH], param_attr=static.ParamAttr("table", initializer=uniform)
    )


def logits(x):
    return layers.fc(
        x,
        WORDS,
        num_flatten_dims=len(x.shape) - 1,
        bias_attr=False,
        param_attr=static.ParamAttr("words", initializer=static.initializer.Uniform(-2.0, 2.0)),
    )


def run(fetches, feed, start=True):
    executor = static.Executor()
    if start:
        executor.run(static.default_startup_program())
    return executor.run(feed=feed, fetch_list=fetches)


STATE = np.linspace(-1, 1, 3 * WIDTH, dtype="float32").reshape(3, WIDTH)


def test_a_given_sequence_is_decoded_like_a_recurrent_network():
    state = static.data("state", [-1, WIDTH])
    x = static.data("x", [-1, 4, WIDTH])
    x.stop_gradient = False
    count = static.data("count", [-1], "int64")
    cell = layers.GRUCell(WIDTH)
    decoder = layers.BasicDecoder(cell, layers.TrainingHelper(x, count))
    outputs, last, lengths = layers.dynamic_decode(
        decoder, inits=state, impute_finished=True, return_length=True
    )
    direct, direct_last = layers.rnn(cell, x, state, sequence_length=count)
    grads = [static.gradients([layers.reduce_sum(v)], [x])[0] for v in (last, direct_last)]
    feed = {
        "state": STATE,
        "x": np.random.default_rng(0).normal(size=(3, 4, WIDTH)).astype("float32"),
        "count": np.array([4, 2, 3]),
    }
    found = run([outputs.cell_outputs, direct, last, direct_last, lengths, *grads], feed)
    for i, n in enumerate([4, 2, 3]):
        np.testing.assert_allclose(found[0][i, :n], found[1][i, :n], rtol=1e-5)
    np.testing.assert_allclose(found[2], found[3], rtol=1e-5)
    assert found[4].tolist() == [4, 2, 3]
    np.testing.assert_allclose(found[5], found[6], rtol=1e-5, atol=1e-7)


def one_step(cell, state):
    """Return logits and the next state for tokens that are fed: what decoders do, by hand."""
    out, new = cell(embed(static.data("tokens", [-1], "int64")), state)
    return [logits(out), new]


@pytest.mark.parametrize("is_test", [True, False])
def test_greedy_tokens_are_the_likeliest_of_each_step(is_test):
    state = static.data("state", [-1, WIDTH])
    first = layers.fill_constant_batch_size_like(state, [-1], "int64", START)
    helper = layers.GreedyEmbeddingHelper(embed, first, END)
    cell = layers.GRUCell(WIDTH)
    decoder = layers.BasicDecoder(cell, helper, output_fn=logits)
    outputs, _, lengths = layers.dynamic_decode(
        decoder, inits=layers.assign(state), max_step_num=4, is_test=is_test, return_length=True
    )
    step = one_step(cell, state)
    ids, counts = run([outputs.sample_ids, lengths], {"state": STATE})
    current, word = STATE, np.full(3, START)
    for at in range(ids.shape[1]):
        feed = {"state": current, "tokens": word}
        scores, current = run(step, feed, start=False)
        word = scores.argmax(-1)
        going_on = counts > at
        assert (ids[going_on, at] == word[going_on]).all()
    assert ids.shape[1] <= 5


def test_sampling_at_a_low_temperature_is_greedy():
    state = static.data("state", [-1, WIDTH])
    first = layers.fill_constant_batch_size_like(state, [-1], "int64", START)
    cell = layers.GRUCell(WIDTH)
    results = []
    for helper in (
        layers.GreedyEmbeddingHelper(embed, first, END),
        layers.SampleEmbeddingHelper(embed, first, END, softmax_temperature=1e-4, seed=7),
    ):
        decoder = layers.BasicDecoder(cell, helper, output_fn=logits)
        results.append(
            layers.dynamic_decode(
                decoder, inits=layers.assign(state), max_step_num=3, is_test=True
            )[0]
        )
    greedy, sampled = run([r.sample_ids for r in results], {"state": STATE})
    np.testing.assert_array_equal(greedy, sampled)


@pytest.mark.slow
@pytest.mark.parametrize("time_major", [True, False])
def test_a_wide_beam_finds_the_best_of_all_sequences(time_major):
    state = static.data("state", [-1, WIDTH])
    cell = layers.GRUCell(WIDTH)
    decoder = layers.BeamSearchDecoder(
        cell, START, END, beam_size=WORDS, embedding_fn=embed, output_fn=logits
    )
    ids, last = layers.dynamic_decode(
        decoder,
        inits=layers.assign(state),
        max_step_num=1,
        is_test=True,
        output_time_major=time_major,
    )
    step = one_step(cell, state)
    found, scores = run([ids, last.log_probs], {"state": STATE})
    found = found.transpose(1, 0, 2) if time_major else found
    for row in range(3):
        every = {}
        for words in itertools.product(range(WORDS), repeat=2):
            total, current, word = 0.0, STATE[row : row + 1], START
            for new in words:
                if word == END:
                    total += 0.0 if new == END else -1e9
                    continue
                feed = {"state": current, "tokens": np.array([word])}
                values, current = run(step, feed, start=False)
                total += values[0, new] - np.log(np.exp(values[0]).sum())
                word = new
            every[words] = total
        best = max(every, key=every.get)
        assert tuple(found[row, :, 0]) == best
        np.testing.assert_allclose(scores[row, 0], every[best], rtol=1e-4)


def test_states_are_repeated_for_each_beam():
    state = static.data("state", [-1, WIDTH])
    tiled = layers.BeamSearchDecoder.tile_beam_merge_with_batch(state, 2)
    (value,) = run([tiled], {"state": STATE})
    np.testing.assert_array_equal(value, STATE.repeat(2, 0))


@pytest.mark.parametrize("method", ["initialize", "step", "finalize"])
def test_a_decoder_says_what_it_must_define(method):
    arguments = {"initialize": 1, "step": 3, "finalize": 3}[method]
    with pytest.raises(NotImplementedError, match=method):
        getattr(layers.Decoder(), method)(*[None] * arguments)
    if method != "finalize":
        name = "next_inputs" if method == "step" else method
        with pytest.raises(NotImplementedError, match=name):
            getattr(layers.DecodeHelper(), name)(*[None] * (4 if name == "next_inputs" else 0))
